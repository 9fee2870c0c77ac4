// SPDX-License-Identifier: Apache-2.0
// The steps of a recurrence, written once over `Tile`, which the including file defines in an anonymous namespace: the
// register tile of its instruction set, with `columns`, `rows`, the operands' type `Element`, how many values along the
// depth lie side by side in panels (`pair`) and in operands (`chunk`), and `multiply`.

#include "cpu/RecurrenceRows.h"

#include "cpu/RecurrenceBackward.h"
#include "cpu/RecurrenceForward.h"

namespace {

template <typename Step> void runBlocks(const Recurrence &call, int64_t i, int pass, int64_t begin, int64_t end) {
  Step step(call, i, pass);
  // Every other step goes backwards: it starts with the weights that the step before has left in the cache. Always from
  // the first block on, weights that are larger than the cache would never be found in it.
  const bool turned = i & 1;
  for (int64_t n = 0; n < end - begin; ++n)
    step.run(turned ? end - 1 - n : begin + n);
  Tile::finish();
}

/// Element (k, j) of a panel.
inline int64_t panelIndex(int64_t k, int64_t j) {
  constexpr int64_t pair = Tile::pair;
  return k / pair * pair * NR + j * pair + k % pair;
}

/// Values of the weights as panels hold them.
inline void weightsOf(const Recurrence &r, int64_t at, int64_t n, float *to) {
  load(productType(r), r.in[1], at, n, to);
}
inline void weightsOf(const Recurrence &r, int64_t at, int64_t n, uint16_t *to) {
  memcpy(to, static_cast<const uint16_t *>(r.in[1]) + at, static_cast<size_t>(n) * 2);
}

void packBlocks(const Recurrence &r, int64_t begin, int64_t end) {
  const mpt_recurrence_desc &d = *r.desc;
  constexpr int64_t run = 64;
  for (int64_t block = begin; block < end; ++block) {
    int64_t first = block * NR, width = d.hidden - first < NR ? d.hidden - first : NR;
    auto *panels = static_cast<Element *>(r.weights) + block * r.gates * d.hidden * NR;
    if (d.backward) {
      // Rows of the weights run along the columns of the panel.
      for (int64_t k = 0; k < r.gates * d.hidden; ++k) {
        Element row[NR] = {};
        weightsOf(r, k * d.hidden + first, width, row);
        for (int64_t j = 0; j < NR; ++j)
          panels[panelIndex(k, j)] = row[j];
      }
      continue;
    }
    // The first step reads the state before it as it does others.
    for (int64_t n = 0; n < d.batch; ++n) {
      Row h = {};
      load(MPT_FLOAT32, r.carry, n * d.hidden + first, width, h);
      leave(r, r.operand[1], 0, h, width, n, first);
    }
    for (int64_t g = 0; g < r.gates; ++g, panels += d.hidden * NR)
      for (int64_t k = 0; k < d.hidden; k += run) {
        int64_t part = d.hidden - k < run ? d.hidden - k : run;
        for (int64_t j = 0; j < NR; ++j) {
          Element row[run] = {};
          if (j < width)
            weightsOf(r, (g * d.hidden + first + j) * d.hidden + k, part, row);
          for (int64_t q = 0; q < part; ++q)
            panels[panelIndex(k + q, j)] = row[q];
        }
      }
  }
}

} // namespace
