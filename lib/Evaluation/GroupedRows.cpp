// SPDX-License-Identifier: Apache-2.0
// Rows of sums in two chains, and which contractions have them.
// Matcher: contractions by the order that the library's calls give their sums.
#include "mpt/Evaluation/GroupedRows.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Support/TwoChains.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;

TwoChainRows::TwoChainRows(MutableArrayRef<double> results, int64_t length)
    : GroupedRows(results, length, TwoChains::terms) {}

void TwoChainRows::addGroup(size_t row, ArrayRef<Product> products) {
  auto count = static_cast<int64_t>(products.size());
  float factors[TwoChains::terms];
  for (int64_t p = 0; p < count; ++p)
    factors[p] = TwoChains::flushed(static_cast<float>(products[p].first));
  double *sums = results.data() + row * length;
  for (int64_t i = 0; i < length; ++i) {
    auto other = [&](int64_t p) { return TwoChains::flushed(static_cast<float>(products[p].second[i])); };
    sums[i] = static_cast<double>(
        TwoChains::add(static_cast<float>(sums[i]), [&](int64_t p) { return factors[p]; }, other, count));
  }
}

Type mpt::multipliedType(Operation *op, unsigned operand) {
  Type type = getElementTypeOrSelf(op->getOperand(operand).getType());
  auto gemm = dyn_cast<library::GemmOp>(op);
  NumericsAttr numerics = numericsOf(op);
  Type read = gemm && gemm.getReadAs() ? *gemm.getReadAs() : numerics ? numerics.getIn() : type;
  return isa<FloatType>(type) && read.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth() ? read : type;
}

SumOrder mpt::sumOrderOf(Operation *op) {
  auto order = [&](auto... channels) { return sumOrderOf(multipliedType(op, 0), multipliedType(op, 1), channels...); };
  auto ofConv = [&](auto conv, Value w) {
    return order(static_cast<int64_t>(conv.getGroups()), tensorType(w).getDimSize(1));
  };
  return TypeSwitch<Operation *, SumOrder>(op)
      .Case<MatMulOp, library::GemmOp>([&](auto) { return order(); })
      .Case([&](ConvOp conv) { return ofConv(conv, conv.getW()); })
      .Case([&](library::ConvOp conv) {
        return conv.getKind() == library::ConvKind::forward ? ofConv(conv, conv.getW()) : SumOrder::OneChain;
      })
      .Default(SumOrder::OneChain);
}
