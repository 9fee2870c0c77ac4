// SPDX-License-Identifier: Apache-2.0
// Dot products of lib/Support/TensorCores, for comparison with models of others:
//   TensorCoresTest NAME FORMAT FORMAT LENGTH < FILE > FILE
// reads records of FP32 numbers (the sum at the start, LENGTH elements of a, LENGTH of b) and writes one FP32 sum each.
// Without arguments it checks cases that the definition decides.
#include "mpt/Support/TensorCores.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/bit.h"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

using namespace mpt;

static int failures = 0;

static void expect(const char *what, double got, double wanted) {
  if (got == wanted)
    return;
  std::printf("%s: expected %.9g, got %.9g\n", what, wanted, got);
  ++failures;
}

static const std::map<std::string, OperandFormat> formats = {{"f16", OperandFormat::F16},
                                                             {"bf16", OperandFormat::BF16},
                                                             {"tf32", OperandFormat::TF32},
                                                             {"e4m3", OperandFormat::E4M3},
                                                             {"e5m2", OperandFormat::E5M2}};

static TensorCoreSums sumsOf(const char *name, OperandFormat a, OperandFormat b) {
  return TensorCore::named(name).value().sums(a, b).value();
}

/// sum + a1 b1 + ... in one instruction.
static double sumOf(const char *name, OperandFormat format, double sum, const std::vector<double> &a,
                    const std::vector<double> &b) {
  return sumsOf(name, format, format).dot(sum, a, format, b, format);
}

/// What tells one accumulator from another, found as on hardware: from sums whose terms cancel or carry.
struct Probe {
  TensorCoreSums sums;
  OperandFormat format;
  int top; ///< the largest products are 2^(2 top)

  /// The sum of products of powers of two at `places`, in ascending order. All in front of a place are zero. There are
  /// none behind the last one: an instruction without products truncates the running sum, too.
  double sumOf(std::vector<std::pair<double, size_t>> places) const {
    std::vector<double> a(places.back().second + 1, 0.0), b(a);
    for (auto [value, place] : places) {
      b[place] = std::exp2(std::min(top, std::ilogb(value) + 8));
      a[place] = value / b[place];
    }
    return sums.dot(0.0, a, format, b, format);
  }
  int products() const {
    double big = std::exp2(2 * top), tiny = std::exp2(2 * top - 28);
    size_t place = 2;
    while (place < 63 && sumOf({{big, 0}, {-big, 1}, {tiny, place}}) == 0.0)
      ++place;
    return static_cast<int>(place);
  }
  int addendBits() const {
    double big = std::exp2(2 * top);
    int bits = 1;
    while (bits < 30 && sumOf({{big, 0}, {-big, 1}, {std::ldexp(big, -bits - 1), 2}}) != 0.0)
      ++bits;
    return bits;
  }
  int resultBits() const {
    double half = std::exp2(2 * top - 1);
    int bits = 1;
    while (bits < 30 && sumOf({{half, 0}, {half, 1}, {std::ldexp(half, -bits), 2}}) != 2 * half)
      ++bits;
    return bits;
  }
};

/// The published accumulators, by architecture and format.
static void checkTable() {
  using F = OperandFormat;
  struct Expected {
    const char *name;
    std::vector<F> formats;
    int products, addendBits, resultBits, promoted;
  } expected[] = {
      {"sm_80", {F::F16, F::BF16}, 8, 24, 23, 0},
      {"sm_80", {F::TF32}, 4, 24, 23, 0},
      {"sm_89", {F::F16, F::BF16}, 8, 24, 23, 0},
      {"sm_89", {F::TF32}, 4, 24, 23, 0},
      {"sm_89", {F::E4M3, F::E5M2}, 16, 13, 13, 128},
      {"sm_90", {F::F16, F::BF16}, 16, 25, 23, 0},
      {"sm_90", {F::TF32}, 8, 25, 23, 0},
      {"sm_90", {F::E4M3, F::E5M2}, 32, 13, 13, 128},
      {"sm_100", {F::F16, F::BF16}, 16, 25, 23, 0},
      {"sm_100", {F::TF32}, 8, 25, 23, 0},
      {"sm_100", {F::E4M3, F::E5M2}, 32, 25, 23, 0},
  };
  for (const Expected &row : expected)
    for (F format : row.formats) {
      Probe probe{sumsOf(row.name, format, format), format, format == F::E4M3 ? 8 : 15};
      std::string where = std::string(row.name) + " format " + std::to_string(static_cast<int>(format));
      expect((where + ": products").c_str(), probe.products(), row.products);
      expect((where + ": bits of addends").c_str(), probe.addendBits(), row.addendBits);
      expect((where + ": bits of results").c_str(), probe.resultBits(), row.resultBits);
      expect((where + ": promoted").c_str(), probe.sums.promoted, row.promoted);
    }
}

static void checkDefinition() {
  using F = OperandFormat;
  // Bits below 2^-13 of the largest addend are dropped, of either sign, and of the running sum as of products.
  expect("kept bit", sumOf("sm_90", F::E5M2, 1.0, {0x1p-7}, {0x1p-6}), 1.0 + 0x1p-13);
  expect("dropped bits", sumOf("sm_90", F::E5M2, 1.0, {0x1p-7, 0x1p-7}, {0x1p-7, 0x1p-7}), 1.0);
  expect("dropped, not rounded", sumOf("sm_90", F::E5M2, 1.0, {0x1.8p-7}, {0x1p-7}), 1.0);
  expect("truncated result", sumOf("sm_90", F::E5M2, 1.0, {1.0, 0x1.8p-6}, {1.0, 0x1p-6}), 2.0 + 0x1p-12);
  expect("truncated negative", sumOf("sm_90", F::E5M2, -1.0, {-1.0, -0x1.8p-6}, {1.0, 0x1p-6}), -2.0 - 0x1p-12);
  expect("dropped negative", sumOf("sm_90", F::E5M2, 1.0, {-0x1p-7}, {0x1p-7}), 1.0);
  expect("running sum", sumOf("sm_90", F::E4M3, 1.0 + 0x1p-13, {2.0}, {2.0}), 5.0);
  // A subnormal operand is aligned by the least normal exponent: 2^-14, not 2^-24, so that 2^-39 of the sum is dropped.
  expect("subnormal", sumOf("sm_80", F::F16, 0x1p-30 + 0x1p-39, {0x1p-24}, {1.0}), 0x1p-24 + 0x1p-30);
  expect("infinity", sumOf("sm_90", F::BF16, 0x1p127, {0x1p64}, {0x1p63}), HUGE_VAL);
  auto nan = static_cast<float>(sumOf("sm_90", F::BF16, 0.0, {HUGE_VAL}, {0.0}));
  expect("NaN", llvm::bit_cast<uint32_t>(nan), 0x7fffffff);
  expect("no such instruction", TensorCore::named("sm_80").value().sums(F::E4M3, F::E4M3).has_value(), 0.0);
  expect("mixed 16-bit formats", TensorCore::named("sm_90").value().sums(F::F16, F::BF16).has_value(), 0.0);
  expect("special instructions", sumsOf("sm_90a", F::E4M3, F::E4M3).promoted, 128.0);
  expect("fast", sumsOf("sm_90+fast-sums", F::E4M3, F::E4M3).promoted, 0.0);
  expect("fast with gradients", sumsOf("sm_90+fast-sums", F::E4M3, F::E5M2).promoted, 128.0);
  for (const char *unknown : {"sm_75", "sm_100+fast-sums", "", "a"})
    expect(unknown, TensorCore::named(unknown).has_value(), 0.0);
}

static int computeDots(char **words) {
  std::optional<TensorCore> core = TensorCore::named(words[1]);
  auto a = formats.find(words[2]), b = formats.find(words[3]);
  size_t length = std::strtoul(words[4], nullptr, 10);
  std::optional<TensorCoreSums> sums =
      core && a != formats.end() && b != formats.end() ? core->sums(a->second, b->second) : std::nullopt;
  if (!sums) {
    std::fprintf(stderr, "expected a Tensor Core and two formats that it multiplies\n");
    return 2;
  }
  std::vector<float> record(1 + 2 * length);
  while (std::fread(record.data(), sizeof(float), record.size(), stdin) == record.size()) {
    std::vector<double> wide(record.begin(), record.end());
    llvm::ArrayRef<double> values(wide);
    auto sum =
        static_cast<float>(sums->dot(wide[0], values.slice(1, length), a->second, values.slice(1 + length), b->second));
    std::fwrite(&sum, sizeof sum, 1, stdout);
  }
  return 0;
}

int main(int count, char **words) {
  if (count == 5)
    return computeDots(words);
  checkTable();
  checkDefinition();
  return failures != 0;
}
