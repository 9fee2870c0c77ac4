// SPDX-License-Identifier: Apache-2.0
// Products by the group, each group added to a running sum as an instruction does.
// Matcher: GEMMs, which alone multiply 8-bit operands as they are.
#include "mpt/Evaluation/TensorCoreProducts.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

std::optional<OperandFormat> mpt::operandFormatOf(Type type) {
  if (type.isF16())
    return OperandFormat::F16;
  if (type.isBF16())
    return OperandFormat::BF16;
  if (isa<Float8E4M3FNType>(type))
    return OperandFormat::E4M3;
  if (isa<Float8E5M2Type>(type))
    return OperandFormat::E5M2;
  return std::nullopt;
}

std::optional<ContractionSums> mpt::sumsOnTensorCore(Operation *op, const TensorCore &core) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  NumericsAttr numerics = numericsOf(op);
  if (!semantics || semantics.getNumericClass() != NumericClass::Contraction || op->getNumOperands() < 2 ||
      (numerics && !numerics.getAcc().isF32()))
    return std::nullopt;
  std::optional<OperandFormat> a = operandFormatOf(multipliedType(op, 0)), b = operandFormatOf(multipliedType(op, 1));
  if (!a || !b)
    return std::nullopt;
  bool isGemm = isa<MatMulOp, library::GemmOp>(op);
  auto type = [&](unsigned i) { return tensorType(op->getOperand(i)); };
  if (isGemm && library::GemmOp::takesFloat8(type(0), type(1)))
    if (std::optional<TensorCoreSums> sums = core.sums(*a, *b))
      return ContractionSums{*sums, *a, *b};
  auto widened = [](OperandFormat format) {
    return format == OperandFormat::E4M3 || format == OperandFormat::E5M2 ? OperandFormat::F16 : format;
  };
  std::optional<TensorCoreSums> sums = core.sums(widened(*a), widened(*b));
  return sums ? std::optional(ContractionSums{*sums, widened(*a), widened(*b)}) : std::nullopt;
}

TensorCoreRows::TensorCoreRows(const ContractionSums &how, MutableArrayRef<double> results, int64_t length)
    : GroupedRows(results, length, how.sums.products), how(how) {
  if (!how.sums.promoted)
    return;
  parts.resize(results.size());
  taken.resize(length ? results.size() / length : 0);
}

void TensorCoreRows::addGroup(size_t number, ArrayRef<Product> products) {
  size_t count = products.size();
  SmallVector<double, 32> a(count), b(count);
  SmallVector<int, 32> aExponents(count), bExponents(count);
  for (size_t p = 0; p < count; ++p) {
    a[p] = products[p].first;
    aExponents[p] = alignedExponent(a[p], how.a);
  }
  double *sums = (parts.empty() ? results.data() : parts.data()) + number * length;
  for (int64_t i = 0; i < length; ++i) {
    for (size_t p = 0; p < count; ++p) {
      b[p] = products[p].second[i];
      bExponents[p] = alignedExponent(b[p], how.b);
    }
    sums[i] = how.sums.add(sums[i], a, aExponents, b, bExponents);
  }
  if (parts.empty())
    return;
  taken[number] += static_cast<int64_t>(count);
  if (taken[number] >= how.sums.promoted)
    promote(number);
}

void TensorCoreRows::promote(size_t number) {
  for (int64_t i = number * length, end = i + length; i < end; ++i) {
    results[i] = static_cast<double>(static_cast<float>(results[i] + parts[i]));
    parts[i] = 0.0;
  }
  taken[number] = 0;
}

void TensorCoreRows::finish() {
  GroupedRows::finish();
  for (size_t number = 0; number < taken.size(); ++number)
    if (taken[number])
      promote(number);
}
