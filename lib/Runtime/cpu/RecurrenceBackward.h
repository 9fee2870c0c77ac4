// SPDX-License-Identifier: Apache-2.0
// A step of a recurrence's gradients for one block, from the saved gates.

namespace {

struct BackwardStep {
  const Recurrence &r;
  const mpt_recurrence_desc &d;
  int64_t i, t;
  int pass;
  float sums[rowsMax * NR];

  BackwardStep(const Recurrence &call, int64_t i, int pass)
      : r(call), d(*call.desc), i(i), t(i < 0 ? 0 : call.index(i)), pass(pass) {}

  void run(int64_t block) {
    eachPart(r, block, [&](const Part &part) {
      bool isFirst = i == d.steps - 1 && !pass;
      if (isFirst)
        memset(sums, 0, sizeof(sums));
      else
        multiply(block, part);
      for (int64_t n = 0; n < part.rows; ++n)
        row(part, n);
    });
  }

private:
  void fetch(const Part &part, int64_t n) {
    if (i < 0)
      return;
    int64_t row = t * d.batch + part.row + n;
    fetchRow<false>(d.input_types[0], r.in[0], row * d.hidden + part.first);
    for (int64_t g = 0; g < r.savedGates() && d.num_inputs > 4; ++g)
      fetchRow<false>(d.input_types[4], r.in[4], (row * r.savedGates() + g) * d.hidden + part.first);
    if (d.num_inputs > 5)
      fetchRow<false>(d.input_types[5], r.in[5], row * d.hidden + part.first);
    if (int64_t states = statesOf(); i && states) {
      int64_t last = r.index(i - 1) * d.batch + part.row + n;
      fetchRow<false>(d.input_types[states], r.in[states], last * d.hidden + part.first);
    }
    for (int64_t g = 0; g < r.gates; ++g)
      fetchRow<true>(d.output_types[0], r.out[0], (row * r.gates + g) * d.hidden + part.first);
  }

  /// The operand with the values of all steps that a step reads one step back: LSTM's cells, GRU's states; 0 for none.
  int64_t statesOf() const {
    return d.cell == MPT_CELL_LSTM ? 5 : d.cell == MPT_CELL_GRU || d.cell == MPT_CELL_GRU_RESET_FIRST ? 3 : 0;
  }

  void multiply(int64_t block, const Part &part) {
    auto *panels = static_cast<const Element *>(r.weights) + block * r.gates * d.hidden * NR;
    // With reset first, the last gate's gradients go through their weights in the second pass of their own step.
    const int64_t first = r.firstGate(pass), end = r.endGate(pass);
    Ahead ahead(part.rows, (end - first) * tilesOf(part.rows, d.hidden));
    for (int64_t g = first; g < end; ++g)
      product(operandAt(r, r.operand[(i + 1 - pass) & 1], g, part.row, 0), d.batch * chunk, part.rows, d.hidden,
              panels + g * d.hidden * NR, sums, g != first, [&] { ahead.next([&](int64_t n) { fetch(part, n); }); });
  }

  /// dh: the products, plus the carry of GRUs.
  void carried(const Part &part, int64_t n, int64_t at, Row &dh) {
    memcpy(dh, sums + n * NR, sizeof(Row));
    if (d.cell != MPT_CELL_GRU && d.cell != MPT_CELL_GRU_RESET_FIRST)
      return;
    Row carry = {};
    load(MPT_FLOAT32, r.carry, at, part.width, carry);
    for (int j = 0; j < NR; ++j)
      dh[j] += carry[j];
  }

  void row(const Part &part, int64_t n) {
    Row dh = {}, dy = {};
    int64_t at = (part.row + n) * d.hidden + part.first;
    if (pass)
      return throughReset(part, n, at);
    carried(part, n, at, dh);
    if (i < 0) {
      store(d.output_types[1], dh, part.width, r.out[1], at);
      if (d.cell == MPT_CELL_LSTM)
        store(d.output_types[2], r.carryCell + at, part.width, r.out[2], at);
      return;
    }
    load(d.input_types[0], r.in[0], t * d.batch * d.hidden + at, part.width, dy);
    for (int j = 0; j < NR; ++j)
      dh[j] += dy[j];
    switch (d.cell) {
    case MPT_CELL_LSTM:
      return lstm(part, n, at, dh);
    case MPT_CELL_GRU:
      return gru(part, n, at, dh);
    case MPT_CELL_GRU_RESET_FIRST:
      return gruResetFirst(part, n, at, dh);
    default:
      return plain(part, n, at, dh);
    }
  }

  void plain(const Part &part, int64_t n, int64_t at, Row &dh) {
    Row y = {};
    load(d.input_types[3], r.in[3], t * d.batch * d.hidden + at, part.width, y);
    for (int j = 0; j < NR; ++j)
      dh[j] = d.cell == MPT_CELL_TANH ? dh[j] * (1 - y[j] * y[j]) : y[j] > 0 ? dh[j] : 0;
    give(part, n, 0, dh);
  }

  void gate(const Part &part, int64_t n, int64_t g, Row &v) {
    int64_t at = ((t * d.batch + part.row + n) * r.savedGates() + g) * d.hidden + part.first;
    load(d.input_types[4], r.in[4], at, part.width, v);
  }
  /// Gradient of gate g, for the result and for the products.
  void give(const Part &part, int64_t n, int64_t g, const Row &v) {
    int64_t at = ((part.row + n) * r.gates + g) * d.hidden + part.first;
    store(d.output_types[0], v, part.width, r.out[0], t * d.batch * r.gates * d.hidden + at);
    leave(r, r.operand[i & 1], g, v, part.width, part.row + n, part.first);
  }
  /// The operand `statesOf` at the step before; the operand `initial` before the first.
  void before(const Part &part, int64_t at, int64_t initial, Row &v) {
    if (i)
      load(d.input_types[statesOf()], r.in[statesOf()], r.index(i - 1) * d.batch * d.hidden + at, part.width, v);
    else
      load(d.input_types[initial], r.in[initial], at, part.width, v);
  }

  void lstm(const Part &part, int64_t n, int64_t at, Row &dh) {
    Row ig = {}, og = {}, fg = {}, cg = {}, c = {}, th, dc = {}, last = {};
    gate(part, n, 0, ig);
    gate(part, n, 1, og);
    gate(part, n, 2, fg);
    gate(part, n, 3, cg);
    load(d.input_types[5], r.in[5], t * d.batch * d.hidden + at, part.width, c);
    tangent(c, th);
    load(MPT_FLOAT32, r.carryCell, at, part.width, dc);
    if (d.num_inputs > 7) {
      Row more = {};
      load(d.input_types[7], r.in[7], t * d.batch * d.hidden + at, part.width, more);
      for (int j = 0; j < NR; ++j)
        dc[j] += more[j];
    }
    before(part, at, 6, last);
    Row di, dO, df, dg;
    for (int j = 0; j < NR; ++j) {
      dc[j] += dh[j] * og[j] * (1 - th[j] * th[j]);
      di[j] = dc[j] * cg[j] * (ig[j] * (1 - ig[j]));
      dO[j] = dh[j] * th[j] * (og[j] * (1 - og[j]));
      df[j] = dc[j] * last[j] * (fg[j] * (1 - fg[j]));
      dg[j] = dc[j] * ig[j] * (1 - cg[j] * cg[j]);
      dc[j] *= fg[j];
    }
    store(MPT_FLOAT32, dc, part.width, r.carryCell, at);
    give(part, n, 0, di);
    give(part, n, 1, dO);
    give(part, n, 2, df);
    give(part, n, 3, dg);
  }

  void gru(const Part &part, int64_t n, int64_t at, Row &dh) {
    Row z = {}, reset = {}, fresh = {}, inside = {}, last = {};
    gate(part, n, 0, z);
    gate(part, n, 1, reset);
    gate(part, n, 2, fresh);
    gate(part, n, 3, inside);
    before(part, at, 2, last);
    Row dz, dr, dn, di;
    for (int j = 0; j < NR; ++j) {
      dn[j] = dh[j] * (1 - z[j]) * (1 - fresh[j] * fresh[j]);
      dz[j] = dh[j] * (last[j] - fresh[j]) * (z[j] * (1 - z[j]));
      dr[j] = dn[j] * inside[j] * (reset[j] * (1 - reset[j]));
      di[j] = dn[j] * reset[j];
      dh[j] *= z[j];
    }
    store(MPT_FLOAT32, dh, part.width, r.carry, at);
    give(part, n, 0, dz);
    give(part, n, 1, dr);
    // The products read the part behind the reset gate instead.
    int64_t row = ((part.row + n) * 3 + 2) * d.hidden + part.first;
    store(d.output_types[0], dn, part.width, r.out[0], t * d.batch * 3 * d.hidden + row);
    store(d.output_types[2], di, part.width, r.out[2], t * d.batch * d.hidden + at);
    leave(r, r.operand[i & 1], 2, di, part.width, part.row + n, part.first);
  }

  void gruResetFirst(const Part &part, int64_t n, int64_t at, Row &dh) {
    Row z = {}, fresh = {}, last = {}, dz, dn;
    gate(part, n, 0, z);
    gate(part, n, 2, fresh);
    before(part, at, 2, last);
    for (int j = 0; j < NR; ++j) {
      dn[j] = dh[j] * (1 - z[j]) * (1 - fresh[j] * fresh[j]);
      dz[j] = dh[j] * (last[j] - fresh[j]) * (z[j] * (1 - z[j]));
      dh[j] *= z[j];
    }
    store(MPT_FLOAT32, dh, part.width, r.carry, at);
    give(part, n, 0, dz);
    give(part, n, 2, dn);
  }

  /// From the gradient of r * state, which the products have.
  void throughReset(const Part &part, int64_t n, int64_t at) {
    Row reset = {}, last = {}, carry = {}, dr;
    const float *s = sums + n * NR;
    gate(part, n, 1, reset);
    before(part, at, 2, last);
    load(MPT_FLOAT32, r.carry, at, part.width, carry);
    for (int j = 0; j < NR; ++j) {
      dr[j] = s[j] * last[j] * (reset[j] * (1 - reset[j]));
      carry[j] += s[j] * reset[j];
    }
    store(MPT_FLOAT32, carry, part.width, r.carry, at);
    give(part, n, 1, dr);
  }
};

} // namespace
