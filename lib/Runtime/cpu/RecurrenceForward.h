// SPDX-License-Identifier: Apache-2.0
// A step of a recurrence for one block: gates, states, and the values that the backward pass reads.

namespace {

struct ForwardStep {
  const Recurrence &r;
  const mpt_recurrence_desc &d;
  int64_t i, t; // in running order, and in memory
  int pass;
  float sums[4][rowsMax * NR];

  ForwardStep(const Recurrence &call, int64_t i, int pass)
      : r(call), d(*call.desc), i(i), t(call.index(i)), pass(pass) {}

  void run(int64_t block) {
    eachPart(r, block, [&](const Part &part) {
      multiply(block, part);
      for (int64_t n = 0; n < part.rows; ++n)
        row(part, n);
    });
  }

private:
  /// The values that a row reads and writes lie far apart in memory: they come while products are made.
  void fetch(const Part &part, int64_t n) {
    int64_t row = t * d.batch + part.row + n;
    for (int64_t g = 0; g < r.gates; ++g)
      fetchRow<false>(d.input_types[0], r.in[0], (row * r.gates + g) * d.hidden + part.first);
    for (int64_t g = 0; g < r.savedGates() && d.num_outputs > 1; ++g)
      fetchRow<true>(d.output_types[1], r.out[1], (row * r.savedGates() + g) * d.hidden + part.first);
    fetchRow<true>(d.output_types[0], r.out[0], row * d.hidden + part.first);
    if (d.num_outputs > 2)
      fetchRow<true>(d.output_types[2], r.out[2], row * d.hidden + part.first);
  }

  void multiply(int64_t block, const Part &part) {
    const Element *a = operandAt(r, pass ? r.kept : r.operand[(i - 1) & 1], 0, part.row, 0);
    auto *panels = static_cast<const Element *>(r.weights) + block * r.gates * d.hidden * NR;
    const int64_t first = r.firstGate(pass), end = r.endGate(pass);
    Ahead ahead(part.rows, (end - first) * tilesOf(part.rows, d.hidden));
    for (int64_t g = first; g < end; ++g)
      product(a, d.batch * chunk, part.rows, d.hidden, panels + g * d.hidden * NR, sums[g], false,
              [&] { ahead.next([&](int64_t n) { fetch(part, n); }); });
  }

  /// Gate g of the input's part.
  void input(const Part &part, int64_t n, int64_t g, Row &v) {
    int64_t at = ((t * d.batch + part.row + n) * r.gates + g) * d.hidden + part.first;
    load(d.input_types[0], r.in[0], at, part.width, v);
  }
  void sum(const Part &part, int64_t n, int64_t g, Row &v) {
    input(part, n, g, v);
    addRow(sums[g] + n * NR, v);
  }
  void saveGate(const Part &part, int64_t n, int64_t g, const Row &v) {
    int64_t at = ((t * d.batch + part.row + n) * r.savedGates() + g) * d.hidden + part.first;
    store(d.output_types[1], v, part.width, r.out[1], at);
  }

  void row(const Part &part, int64_t n) {
    Row h = {};
    int64_t at = (part.row + n) * d.hidden + part.first;
    if (r.passes() > 1 && !pass)
      return resetFirst(part, n, at);
    switch (d.cell) {
    case MPT_CELL_LSTM:
      lstm(part, n, at, h);
      break;
    case MPT_CELL_GRU:
      gru(part, n, at, h);
      break;
    case MPT_CELL_GRU_RESET_FIRST:
      gruBehindReset(part, n, at, h);
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
    leave(r, r.operand[i & 1], 0, h, part.width, part.row + n, part.first);
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
    load(MPT_FLOAT32, r.carry, at, part.width, h);
    for (int j = 0; j < NR; ++j)
      h[j] = (1 - z[j]) * fresh[j] + z[j] * h[j];
    store(MPT_FLOAT32, h, part.width, r.carry, at);
    saveGate(part, n, 0, z);
    saveGate(part, n, 1, reset);
    saveGate(part, n, 2, fresh);
    saveGate(part, n, 3, inside);
  }

  /// The gates but the last, and the operand of its GEMM; z stays wide in carryCell.
  void resetFirst(const Part &part, int64_t n, int64_t at) {
    Row z = {}, reset = {}, kept = {};
    sum(part, n, 0, z);
    sum(part, n, 1, reset);
    sigmoid(z);
    sigmoid(reset);
    load(MPT_FLOAT32, r.carry, at, part.width, kept);
    for (int j = 0; j < NR; ++j)
      kept[j] *= reset[j];
    store(MPT_FLOAT32, z, part.width, r.carryCell, at);
    saveGate(part, n, 0, z);
    saveGate(part, n, 1, reset);
    store(d.output_types[2], kept, part.width, r.out[2], t * d.batch * d.hidden + at);
    leave(r, r.kept, 0, kept, part.width, part.row + n, part.first);
  }

  void gruBehindReset(const Part &part, int64_t n, int64_t at, Row &h) {
    Row z = {}, x = {}, fresh;
    sum(part, n, 2, x);
    tangent(x, fresh);
    load(MPT_FLOAT32, r.carryCell, at, part.width, z);
    load(MPT_FLOAT32, r.carry, at, part.width, h);
    for (int j = 0; j < NR; ++j)
      h[j] = (1 - z[j]) * fresh[j] + z[j] * h[j];
    store(MPT_FLOAT32, h, part.width, r.carry, at);
    saveGate(part, n, 2, fresh);
  }
};

} // namespace
