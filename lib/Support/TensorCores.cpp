// SPDX-License-Identifier: Apache-2.0
// The table of Tensor Cores' accumulators, and their arithmetic in FP64 and integers.
#include "mpt/Support/TensorCores.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/ADT/bit.h"
#include <cmath>

using namespace llvm;
using namespace mpt;

namespace {

enum class Operands { Half, TF32, Float8 };

struct Row {
  StringLiteral architecture;
  Operands operands;
  TensorCoreSums sums;
};

// Products at once are of the instruction, or of half of it where the hardware makes two steps of one (sm_80, sm_89).
constexpr Row table[] = {
    // architecture, operands: products, bits of addends, of results, promoted after
    {"sm_80", Operands::Half, {8, 24, 23, 0}},      {"sm_80", Operands::TF32, {4, 24, 23, 0}},
    {"sm_89", Operands::Half, {8, 24, 23, 0}},      {"sm_89", Operands::TF32, {4, 24, 23, 0}},
    {"sm_89", Operands::Float8, {16, 13, 13, 128}}, {"sm_90", Operands::Half, {16, 25, 23, 0}},
    {"sm_90", Operands::TF32, {8, 25, 23, 0}},      {"sm_90", Operands::Float8, {32, 13, 13, 128}},
    {"sm_100", Operands::Half, {16, 25, 23, 0}},    {"sm_100", Operands::TF32, {8, 25, 23, 0}},
    {"sm_100", Operands::Float8, {32, 25, 23, 0}},
};

constexpr StringLiteral fastSuffix = "+fast-sums";
/// Of FP32, in which running sums are kept.
constexpr int leastExponent = -126;

Operands operandsOf(OperandFormat format) {
  switch (format) {
  case OperandFormat::F16:
  case OperandFormat::BF16:
    return Operands::Half;
  case OperandFormat::TF32:
    return Operands::TF32;
  case OperandFormat::E4M3:
  case OperandFormat::E5M2:
    return Operands::Float8;
  }
  llvm_unreachable("every format is of a kind");
}

/// The exponent of the least normal number.
int leastExponentOf(OperandFormat format) {
  switch (format) {
  case OperandFormat::E4M3:
    return -6;
  case OperandFormat::F16:
  case OperandFormat::E5M2:
    return -14;
  case OperandFormat::BF16:
  case OperandFormat::TF32:
    return leastExponent;
  }
  llvm_unreachable("every format has normal numbers");
}

/// 2^exponent, of a normal FP64 number.
double powerOfTwo(int exponent) { return bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }
/// The exponent of the leading bit; infinities and NaN have 1024, zero has -1023.
int exponentOf(double x) { return static_cast<int>((bit_cast<uint64_t>(x) >> 52) & 0x7ff) - 1023; }
int exponentOfSum(double x) { return std::max(exponentOf(x), leastExponent); }

/// The sum of IEEE, with the one NaN that the hardware makes (0x7fffffff).
double notFinite(double sum, ArrayRef<double> a, ArrayRef<double> b) {
  for (auto [x, y] : zip(a, b))
    sum += x * y;
  return std::isnan(sum) ? bit_cast<double>(UINT64_C(0x7fffffffe0000000)) : sum;
}

} // namespace

int mpt::alignedExponent(double x, OperandFormat format) {
  return x == 0.0 ? leastExponent : std::max(exponentOf(x), leastExponentOf(format));
}

double TensorCoreSums::add(double sum, ArrayRef<double> a, ArrayRef<int> aExponents, ArrayRef<double> b,
                           ArrayRef<int> bExponents) const {
  int largest = exponentOfSum(sum);
  for (auto [x, y] : zip(aExponents, bExponents))
    largest = std::max(largest, x + y);
  // Finite operands and sums have less, and an infinity times the least number more.
  if (largest > 512)
    return notFinite(sum, a, b);
  // Conversions to integers truncate towards zero. A product is less than four times its power of two.
  const double scale = powerOfTwo(addendBits - largest);
  int64_t total = static_cast<int64_t>(sum * scale);
  for (auto [x, y] : zip(a, b))
    total += static_cast<int64_t>(x * y * scale);
  double exact = static_cast<double>(total) * powerOfTwo(largest - addendBits);
  double unit = powerOfTwo(exponentOfSum(exact) - resultBits);
  double result = static_cast<double>(static_cast<int64_t>(exact / unit)) * unit;
  return std::fabs(result) < 0x1p128 ? result : std::copysign(HUGE_VAL, result);
}

double TensorCoreSums::dot(double sum, ArrayRef<double> a, OperandFormat aFormat, ArrayRef<double> b,
                           OperandFormat bFormat) const {
  for (size_t first = 0; first < a.size(); first += products) {
    ArrayRef<double> as = a.drop_front(first).take_front(products), bs = b.drop_front(first).take_front(products);
    SmallVector<int, 32> aExponents, bExponents;
    for (auto [x, y] : zip(as, bs)) {
      aExponents.push_back(alignedExponent(x, aFormat));
      bExponents.push_back(alignedExponent(y, bFormat));
    }
    sum = add(sum, as, aExponents, bs, bExponents);
  }
  return sum;
}

bool TensorCoreSums::addsUpInF32(int64_t length) const {
  constexpr int64_t partial = 128; // of cuBLASLt, without fast accumulation
  return !narrowerThanF32() || std::min<int64_t>(length, promoted ? promoted : length) <= partial;
}

int64_t TensorCoreSums::instructions(int64_t length) const {
  return (std::min<int64_t>(length, promoted ? promoted : length) + products - 1) / products;
}

double TensorCoreSums::typicalError(int64_t length) const {
  double steps = static_cast<double>(instructions(length));
  double parts = promoted ? static_cast<double>(length) / promoted : 0.0;
  return (std::sqrt(steps) / 2 + steps / 8) * std::exp2(-std::min(addendBits, resultBits)) + std::sqrt(parts) * 0x1p-24;
}

double TensorCoreSums::largestError(int64_t length) const {
  double steps = static_cast<double>(instructions(length));
  double parts = promoted ? static_cast<double>(length) / promoted : 0.0;
  return steps * ((products + 1) * std::exp2(-addendBits) + std::exp2(-resultBits)) + parts * 0x1p-24;
}

SmallVector<std::string> TensorCore::names() {
  SmallVector<std::string> found;
  auto add = [&](std::string name) {
    if (!is_contained(found, name))
      found.push_back(std::move(name));
  };
  for (const Row &row : table)
    add(row.architecture.str());
  for (const Row &row : table)
    if (row.sums.promoted)
      add((row.architecture + fastSuffix).str());
  return found;
}

std::optional<TensorCore> TensorCore::named(StringRef name) {
  TensorCore core;
  core.fastSums = name.consume_back(fastSuffix);
  name.consume_back("a");
  const Row *row = find_if(table, [&](const Row &row) { return row.architecture == name; });
  if (row == std::end(table))
    return std::nullopt;
  core.architecture = row->architecture;
  core.spelled = (core.architecture + (core.fastSums ? fastSuffix : StringLiteral(""))).str();
  return is_contained(names(), core.spelled) ? std::optional(core) : std::nullopt;
}

std::optional<TensorCoreSums> TensorCore::sums(OperandFormat a, OperandFormat b) const {
  Operands operands = operandsOf(a);
  const Row *row =
      find_if(table, [&](const Row &row) { return row.architecture == architecture && row.operands == operands; });
  if (row == std::end(table) || operandsOf(b) != operands || (operands == Operands::Half && a != b))
    return std::nullopt;
  TensorCoreSums sums = row->sums;
  // cuBLASLt's fast accumulation keeps one running sum. The runtime asks for it for two E4M3 operands alone.
  if (fastSums && a == OperandFormat::E4M3 && b == OperandFormat::E4M3)
    sums.promoted = 0;
  return sums;
}
