// SPDX-License-Identifier: Apache-2.0
// A step of a recurrence for one block: gates, states, and what the backward pass reads of them.

namespace {

struct ForwardStep {
  const Recurrence &r;
  const mpt_recurrence_desc &d;
  int64_t i, t; // in running order, and in memory
  float sums[4][rowsMax * NR];

  ForwardStep(const Recurrence &call, int64_t i) : r(call), d(*call.desc), i(i), t(call.index(i)) {}

  void run(int64_t block) {
    eachPart(r, block, [&](const Part &part) {
      multiply(block, part);
      for (int64_t n = 0; n < part.rows; ++n)
        row(part, n);
    });
  }

private:
  void multiply(int64_t block, const Part &part) {
    const void *before = i ? offset(r.out[0], d.output_types[0], r.index(i - 1) * d.batch * d.hidden) : nullptr;
    auto *a = operandOf(r, before, i - 1) + part.row * d.hidden;
    auto *panels = static_cast<const typename Tile::Element *>(r.weights) + block * r.gates * d.hidden * NR;
    for (int64_t g = 0; g < r.gates; ++g)
      product(a, d.hidden, part.rows, d.hidden, panels + g * d.hidden * NR, sums[g]);
  }

  /// Gate g of the input's part.
  void input(const Part &part, int64_t n, int64_t g, Row &v) {
    int64_t at = ((t * d.batch + part.row + n) * r.gates + g) * d.hidden + part.first;
    load(d.input_types[0], r.in[0], at, part.width, v);
  }
  void sum(const Part &part, int64_t n, int64_t g, Row &v) {
    input(part, n, g, v);
    const float *s = sums[g] + n * NR;
    for (int j = 0; j < NR; ++j)
      v[j] += s[j];
  }
  void saveGate(const Part &part, int64_t n, int64_t g, const Row &v) {
    int64_t at = ((t * d.batch + part.row + n) * 4 + g) * d.hidden + part.first;
    store(d.output_types[1], v, part.width, r.out[1], at);
  }

  void row(const Part &part, int64_t n) {
    Row h = {};
    int64_t at = (part.row + n) * d.hidden + part.first;
    switch (d.cell) {
    case MPT_CELL_LSTM:
      lstm(part, n, at, h);
      break;
    case MPT_CELL_GRU:
      gru(part, n, at, h);
      break;
    case MPT_CELL_TANH: {
      Row x = {};
      sum(part, n, 0, x);
      tangent(x, h);
      break;
    }
    default:
      sum(part, n, 0, h);
      for (float &v : h)
        v = v < 0 ? 0 : v;
    }
    store(d.output_types[0], h, part.width, r.out[0], t * d.batch * d.hidden + at);
    leave(r, i, h, part.width, at);
  }

  void lstm(const Part &part, int64_t n, int64_t at, Row &h) {
    Row ig = {}, og = {}, fg = {}, cx = {}, cg, c = {}, th;
    sum(part, n, 0, ig);
    sum(part, n, 1, og);
    sum(part, n, 2, fg);
    sum(part, n, 3, cx);
    sigmoid(ig);
    sigmoid(og);
    sigmoid(fg);
    tangent(cx, cg);
    if (!i)
      load(d.input_types[3], r.in[3], at, part.width, c);
    else if (d.output_types[2] == MPT_FLOAT32)
      load(MPT_FLOAT32, r.out[2], r.index(i - 1) * d.batch * d.hidden + at, part.width, c);
    else
      load(MPT_FLOAT32, r.carryCell, at, part.width, c);
    for (int j = 0; j < NR; ++j)
      c[j] = fg[j] * c[j] + ig[j] * cg[j];
    if (d.output_types[2] != MPT_FLOAT32)
      store(MPT_FLOAT32, c, part.width, r.carryCell, at);
    tangent(c, th);
    for (int j = 0; j < NR; ++j)
      h[j] = og[j] * th[j];
    saveGate(part, n, 0, ig);
    saveGate(part, n, 1, og);
    saveGate(part, n, 2, fg);
    saveGate(part, n, 3, cg);
    store(d.output_types[2], c, part.width, r.out[2], t * d.batch * d.hidden + at);
  }

  void gru(const Part &part, int64_t n, int64_t at, Row &h) {
    Row z = {}, reset = {}, x = {}, inside = {}, fresh;
    sum(part, n, 0, z);
    sum(part, n, 1, reset);
    sigmoid(z);
    sigmoid(reset);
    load(d.input_types[3], r.in[3], part.first, part.width, inside);
    input(part, n, 2, x);
    const float *s = sums[2] + n * NR;
    for (int j = 0; j < NR; ++j) {
      inside[j] += s[j];
      x[j] += reset[j] * inside[j];
    }
    tangent(x, fresh);
    memcpy(h, r.carry + at, static_cast<size_t>(part.width) * 4);
    for (int j = 0; j < NR; ++j)
      h[j] = (1 - z[j]) * fresh[j] + z[j] * h[j];
    memcpy(r.carry + at, h, static_cast<size_t>(part.width) * 4);
    saveGate(part, n, 0, z);
    saveGate(part, n, 1, reset);
    saveGate(part, n, 2, fresh);
    saveGate(part, n, 3, inside);
  }
};

} // namespace
