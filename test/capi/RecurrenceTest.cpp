// SPDX-License-Identifier: Apache-2.0
// Recurrences and their gradients against naive FP64 loops, for every kernel that this processor runs, over cells,
// types and odd sizes; and equal results for every thread count.
#include "cpu/Recurrence.h"
#include "Check.h"
#include "Values.h"
#include "core/Error.h"
#include "cpu/Amx.h"
#include "cpu/Gemm.h"

#include <cmath>
#include <string>

using namespace mpt::rt;
using mpt::test::Call;
using mpt::test::Values;

namespace {

double epsilonOf(int64_t type) { return type == MPT_FLOAT16 ? 0x1p-11 : type == MPT_BFLOAT16 ? 0x1p-8 : 0x1p-24; }
size_t index(int64_t i) { return static_cast<size_t>(i); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// `x` as values of `type`.
std::vector<double> rounded(int64_t type, const std::vector<double> &x) {
  Values v(type, static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i)
    v.set(static_cast<int64_t>(i), x[i]);
  return v.all();
}

/// A call with its buffers: random inputs, small weights.
struct Case {
  mpt_recurrence_desc d{};
  std::vector<Values> buffers;
  int64_t gates;

  Case(int64_t cell, bool backward, bool reverse, bool cells, int64_t steps, int64_t batch, int64_t hidden,
       int64_t type)
      : gates(mpt_recurrence_gates(cell)) {
    d.cell = cell, d.backward = backward, d.reverse = reverse;
    d.steps = steps, d.batch = batch, d.hidden = hidden;
    bool isLstm = cell == MPT_CELL_LSTM, isGru = cell == MPT_CELL_GRU, resetFirst = cell == MPT_CELL_GRU_RESET_FIRST;
    int64_t state = batch * hidden;
    input(type, steps * state * (backward ? 1 : gates));
    input(type, gates * hidden * hidden);
    for (int64_t i = 0; i < buffers[1].count(); ++i)
      buffers[1].set(i, buffers[1][i] / std::sqrt(static_cast<double>(hidden)));
    input(type, state);
    if (backward) {
      input(type, steps * state);
      if (gates > 1)
        input(type, savedGates() * steps * state);
      if (isLstm) {
        input(MPT_FLOAT32, steps * state);
        input(MPT_FLOAT32, state);
        if (cells)
          input(MPT_FLOAT32, steps * state);
      }
      output(type, gates * steps * state);
      output(type, state);
      if (isLstm)
        output(MPT_FLOAT32, state);
      if (isGru)
        output(type, steps * state);
    } else {
      if (isLstm)
        input(MPT_FLOAT32, state);
      if (isGru)
        input(type, hidden);
      output(type, steps * state);
      if (gates > 1)
        output(type, savedGates() * steps * state);
      if (isLstm || resetFirst)
        output(cells ? MPT_FLOAT32 : type, steps * state);
    }
    d.workspace_bytes = mpt_recurrence_workspace(&d);
  }

  void input(int64_t type, int64_t count) {
    d.input_types[d.num_inputs++] = type;
    buffers.push_back(Values::random(type, count));
  }
  void output(int64_t type, int64_t count) {
    d.output_types[d.num_outputs++] = type;
    buffers.push_back(Values::random(type, count));
  }
  int64_t savedGates() const { return d.cell == MPT_CELL_GRU_RESET_FIRST ? 3 : 4; }
  Values &out(int64_t i) { return buffers[index(d.num_inputs + i)]; }

  /// `kernels` null: the function of the ABI, which chooses.
  std::vector<Values> run(const RecurrenceKernels *kernels, int threads) {
    std::vector<void *> pointers;
    for (Values &buffer : buffers)
      pointers.push_back(buffer.data());
    std::vector<uint8_t> workspace(index(d.workspace_bytes + 64));
    auto *aligned = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
    Call call(threads);
    if (kernels)
      runRecurrence(&call.exec, d, *kernels, pointers.data(), aligned);
    else
      EXPECT(mpt_rt_recurrence(&call.exec, 0, &d, pointers.data(), aligned) == MPT_OK);
    return std::vector<Values>(buffers.begin() + d.num_inputs, buffers.end());
  }
};

/// The formulas in FP64, with operands of GEMMs rounded as the weights are.
class Naive {
public:
  explicit Naive(Case &call) : d(call.d), gates(call.gates), saved(call.savedGates()) {
    for (int64_t i = 0; i < d.num_inputs; ++i)
      in.push_back(call.buffers[index(i)].all());
    for (int64_t i = 0; i < d.num_outputs; ++i)
      out.emplace_back(index(call.out(i).count()));
  }
  std::vector<std::vector<double>> run() {
    d.backward ? backward() : forward();
    return out;
  }

private:
  const mpt_recurrence_desc &d;
  int64_t gates, saved;
  std::vector<std::vector<double>> in, out;

  int64_t step(int64_t i) const { return d.reverse ? d.steps - 1 - i : i; }
  std::vector<double> narrow(const std::vector<double> &x) const { return rounded(d.input_types[1], x); }

  void forward() {
    int64_t H = d.hidden;
    for (int64_t n = 0; n < d.batch; ++n) {
      std::vector<double> h(in[2].begin() + n * H, in[2].begin() + (n + 1) * H), c(index(H));
      if (d.cell == MPT_CELL_LSTM)
        c.assign(in[3].begin() + n * H, in[3].begin() + (n + 1) * H);
      for (int64_t i = 0; i < d.steps; ++i) {
        int64_t row = step(i) * d.batch + n;
        std::vector<double> next(index(H)), operand = narrow(h);
        if (d.cell == MPT_CELL_GRU_RESET_FIRST) {
          h = resetFirst(row, h, operand);
          continue;
        }
        for (int64_t j = 0; j < H; ++j)
          next[index(j)] = cell(row, j, h[index(j)], operand, c);
        h = next;
        for (int64_t j = 0; j < H; ++j)
          out[0][index(row * H + j)] = h[index(j)];
      }
    }
  }

  /// GRU whose last GEMM reads r * state.
  std::vector<double> resetFirst(int64_t row, const std::vector<double> &h, const std::vector<double> &operand) {
    int64_t H = d.hidden;
    std::vector<double> kept(index(H)), z(index(H)), next(index(H));
    auto sum = [&](int64_t g, int64_t j, const std::vector<double> &state) {
      double s = in[0][index((row * 3 + g) * H + j)];
      for (int64_t k = 0; k < H; ++k)
        s += state[index(k)] * in[1][index((g * H + j) * H + k)];
      return s;
    };
    for (int64_t j = 0; j < H; ++j) {
      double r = sigmoid(sum(1, j, operand));
      z[index(j)] = sigmoid(sum(0, j, operand));
      kept[index(j)] = r * h[index(j)];
      out[1][index((row * 3 + 0) * H + j)] = z[index(j)];
      out[1][index((row * 3 + 1) * H + j)] = r;
      out[2][index(row * H + j)] = kept[index(j)];
    }
    kept = narrow(kept);
    for (int64_t j = 0; j < H; ++j) {
      double fresh = std::tanh(sum(2, j, kept));
      out[1][index((row * 3 + 2) * H + j)] = fresh;
      next[index(j)] = (1 - z[index(j)]) * fresh + z[index(j)] * h[index(j)];
      out[0][index(row * H + j)] = next[index(j)];
    }
    return next;
  }

  double cell(int64_t row, int64_t j, double before, const std::vector<double> &h, std::vector<double> &c) {
    int64_t H = d.hidden;
    double x[4] = {}, s[4] = {};
    for (int64_t g = 0; g < gates; ++g) {
      x[g] = in[0][index((row * gates + g) * H + j)];
      for (int64_t k = 0; k < H; ++k)
        s[g] += h[index(k)] * in[1][index((g * H + j) * H + k)];
    }
    auto save = [&](std::initializer_list<double> values) {
      int64_t g = 0;
      for (double value : values)
        out[1][index((row * saved + g++) * H + j)] = value;
    };
    if (d.cell == MPT_CELL_LSTM) {
      double ig = sigmoid(x[0] + s[0]), o = sigmoid(x[1] + s[1]), f = sigmoid(x[2] + s[2]), g = std::tanh(x[3] + s[3]);
      double &state = c[index(j)];
      state = f * state + ig * g;
      save({ig, o, f, g});
      out[2][index(row * H + j)] = state;
      return o * std::tanh(state);
    }
    if (d.cell == MPT_CELL_GRU) {
      double z = sigmoid(x[0] + s[0]), r = sigmoid(x[1] + s[1]), inside = s[2] + in[3][index(j)];
      double fresh = std::tanh(x[2] + r * inside);
      save({z, r, fresh, inside});
      return (1 - z) * fresh + z * before;
    }
    return d.cell == MPT_CELL_TANH ? std::tanh(x[0] + s[0]) : std::max(0.0, x[0] + s[0]);
  }

  void backward() {
    int64_t H = d.hidden;
    for (int64_t n = 0; n < d.batch; ++n) {
      std::vector<double> dh(index(H)), dc(index(H));
      for (int64_t i = d.steps - 1; i >= 0; --i) {
        int64_t row = step(i) * d.batch + n, before = i ? step(i - 1) * d.batch + n : -1;
        std::vector<double> operand(index(gates * H)), carry(index(H));
        for (int64_t j = 0; j < H; ++j)
          gradients(n, row, before, j, dh[index(j)] + in[0][index(row * H + j)], dc[index(j)], operand,
                    carry[index(j)]);
        if (d.cell == MPT_CELL_GRU_RESET_FIRST)
          throughReset(n, row, before, operand, carry);
        dh = carry;
        operand = narrow(operand);
        for (int64_t j = 0; j < H; ++j)
          for (int64_t k = 0; k < (d.cell == MPT_CELL_GRU_RESET_FIRST ? 2 : gates) * H; ++k)
            dh[index(j)] += operand[index(k)] * in[1][index(k * H + j)];
      }
      for (int64_t j = 0; j < H; ++j) {
        out[1][index(n * H + j)] = dh[index(j)];
        if (d.cell == MPT_CELL_LSTM)
          out[2][index(n * H + j)] = dc[index(j)];
      }
    }
  }

  /// The reset gate's gradient, and the state's gradient through it.
  void throughReset(int64_t n, int64_t row, int64_t before, std::vector<double> &operand, std::vector<double> &carry) {
    int64_t H = d.hidden;
    std::vector<double> last = narrow(std::vector<double>(operand.begin() + 2 * H, operand.end()));
    for (int64_t j = 0; j < H; ++j) {
      double s = 0, r = in[4][index((row * 3 + 1) * H + j)];
      for (int64_t k = 0; k < H; ++k)
        s += last[index(k)] * in[1][index((2 * H + k) * H + j)];
      double state = before < 0 ? in[2][index(n * H + j)] : in[3][index(before * H + j)];
      operand[index(H + j)] = out[0][index((row * 3 + 1) * H + j)] = s * state * r * (1 - r);
      carry[index(j)] += s * r;
    }
  }

  void gradients(int64_t n, int64_t row, int64_t before, int64_t j, double dh, double &dc, std::vector<double> &operand,
                 double &carry) {
    int64_t H = d.hidden, at = row * H + j;
    auto gate = [&](int64_t g) { return in[4][index((row * saved + g) * H + j)]; };
    auto give = [&](int64_t g, double value) {
      operand[index(g * H + j)] = value;
      out[0][index((row * gates + g) * H + j)] = value;
    };
    if (d.cell == MPT_CELL_LSTM) {
      double ig = gate(0), o = gate(1), f = gate(2), g = gate(3), t = std::tanh(in[5][index(at)]);
      double last = before < 0 ? in[6][index(n * H + j)] : in[5][index(before * H + j)];
      dc += dh * o * (1 - t * t) + (d.num_inputs > 7 ? in[7][index(at)] : 0);
      give(0, dc * g * ig * (1 - ig));
      give(1, dh * t * o * (1 - o));
      give(2, dc * last * f * (1 - f));
      give(3, dc * ig * (1 - g * g));
      dc *= f;
    } else if (d.cell == MPT_CELL_GRU_RESET_FIRST) {
      double z = gate(0), fresh = gate(2);
      double last = before < 0 ? in[2][index(n * H + j)] : in[3][index(before * H + j)];
      give(2, dh * (1 - z) * (1 - fresh * fresh));
      give(0, dh * (last - fresh) * z * (1 - z));
      carry = dh * z;
    } else if (d.cell == MPT_CELL_GRU) {
      double z = gate(0), r = gate(1), fresh = gate(2), inside = gate(3);
      double last = before < 0 ? in[2][index(n * H + j)] : in[3][index(before * H + j)];
      double dn = dh * (1 - z) * (1 - fresh * fresh);
      give(0, dh * (last - fresh) * z * (1 - z));
      give(1, dn * inside * r * (1 - r));
      give(2, dn);
      operand[index(2 * H + j)] = dn * r;
      out[2][index(at)] = dn * r;
      carry = dh * z;
    } else {
      double y = in[3][index(at)];
      give(0, d.cell == MPT_CELL_TANH ? dh * (1 - y * y) : y > 0 ? dh : 0);
    }
  }
};

/// Every step rounds once more, and may round an operand of the next GEMM the other way.
bool agrees(const Case &call, const std::vector<Values> &got, const std::vector<std::vector<double>> &wanted) {
  for (size_t i = 0; i < got.size(); ++i) {
    double size = 0, worst = 0;
    for (size_t j = 0; j < wanted[i].size(); ++j) {
      double error = std::fabs(got[i][static_cast<int64_t>(j)] - wanted[i][j]);
      size = std::max(size, std::fabs(wanted[i][j]));
      worst = error <= worst ? worst : error; // NaN counts as worst
    }
    // Functions are polynomials, whose errors are some roundings.
    double epsilon = epsilonOf(call.d.input_types[1]) + 0x1p-24 * static_cast<double>(call.d.hidden + 4);
    if (!(worst <= size * epsilon * static_cast<double>(call.d.steps + 1)))
      return false;
  }
  return true;
}

void check(const RecurrenceKernels &kernels, Case &call, const std::vector<std::vector<double>> &wanted) {
  if (!takesRecurrence(kernels, call.d))
    return;
  std::vector<Values> one = call.run(&kernels, 1), three = call.run(&kernels, 3);
  bool ok = EXPECT(agrees(call, one, wanted));
  for (size_t i = 0; i < one.size(); ++i)
    ok &= EXPECT(one[i].bytes == three[i].bytes);
  if (!ok)
    fprintf(stderr, "  %s: cell %lld, backward %lld, reverse %lld, steps %lld, batch %lld, hidden %lld, type %lld\n",
            kernels.name, static_cast<long long>(call.d.cell), static_cast<long long>(call.d.backward),
            static_cast<long long>(call.d.reverse), static_cast<long long>(call.d.steps),
            static_cast<long long>(call.d.batch), static_cast<long long>(call.d.hidden),
            static_cast<long long>(call.d.input_types[1]));
}

std::vector<const RecurrenceKernels *> everyKernel() {
  std::vector<const RecurrenceKernels *> kernels{&recurrencePortable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    kernels.push_back(&recurrenceAvx2);
  if (&gemmKernels() == &gemmAvx512) {
    kernels.push_back(&recurrenceAvx512);
    if (__builtin_cpu_supports("avx512bf16"))
      kernels.push_back(&recurrenceBf16);
    if (hasAmx())
      kernels.push_back(&recurrenceAmx);
  }
#endif
  return kernels;
}

struct Extents {
  int64_t steps, batch, hidden;
};

void testKernels() {
  const Extents extents[] = {{1, 1, 1}, {3, 2, 7}, {2, 5, 33}, {2, 17, 32}, {2, 51, 64}, {2, 3, 288}};
  for (int64_t type : {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16})
    for (int64_t cell : {MPT_CELL_LSTM, MPT_CELL_GRU, MPT_CELL_TANH, MPT_CELL_RELU, MPT_CELL_GRU_RESET_FIRST})
      for (Extents e : extents)
        for (int form = 0; form < 4; ++form) {
          Case call(cell, form & 1, (form + e.batch) & 1, form & 2, e.steps, e.batch, e.hidden, type);
          std::vector<std::vector<double>> wanted = Naive(call).run();
          for (const RecurrenceKernels *kernels : everyKernel())
            check(*kernels, call, wanted);
        }
}

/// The kernels that the ABI's function chooses give its result; wrong descriptions are refused.
void testCall() {
  Case call(MPT_CELL_LSTM, false, false, true, 3, 4, 64, MPT_BFLOAT16);
  std::vector<Values> one = call.run(nullptr, 1), other = call.run(&recurrenceKernels(call.d), 2);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT(one[i].bytes == other[i].bytes);
  auto refuses = [&](mpt_recurrence_desc d) {
    Call context(1);
    return mpt_rt_recurrence(&context.exec, 0, &d, nullptr, nullptr) != MPT_OK;
  };
  mpt_recurrence_desc d = call.d;
  d.num_inputs = 3;
  EXPECT(refuses(d));
  d = call.d;
  d.input_types[0] = MPT_FLOAT64;
  EXPECT(refuses(d));
  d = call.d;
  d.workspace_bytes -= 1;
  EXPECT(refuses(d));
}

} // namespace

int main() {
  testKernels();
  testCall();
  return mpt::test::finish("RecurrenceTest");
}
