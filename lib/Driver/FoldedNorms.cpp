// SPDX-License-Identifier: Apache-2.0
// Matcher: divisions of a parameter by a constant.
#include "FoldedNorms.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/Tensor.h"

#include "llvm/ADT/StringSet.h"
#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// Largest relative difference of a norm between an exporter's arithmetic and the sum here.
constexpr double kTolerance = 1e-5;

/// Whether `divisor` has at each element the `power`-norm of `value`'s elements along `axes` (a mask).
bool areNorms(const Tensor &value, const Tensor &divisor, uint64_t axes, int power) {
  ArrayRef<int64_t> shape = value.shape();
  SmallVector<int64_t> strides = rowMajorStrides(shape);
  auto keptOf = [&](int64_t element) {
    int64_t kept = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (!(axes >> axis & 1))
        kept = kept * shape[axis] + element / strides[axis] % shape[axis];
    return kept;
  };
  std::vector<double> sums(value.size());
  for (int64_t i = 0; i < value.size(); ++i)
    sums[keptOf(i)] += std::pow(std::abs(value.reals()[i]), power);
  for (int64_t i = 0; i < value.size(); ++i) {
    double norm = std::pow(sums[keptOf(i)], 1.0 / power);
    if (!(std::abs(norm - divisor.reals()[i]) <= kTolerance * norm))
      return false;
  }
  return value.size() > 0;
}

bool areNorms(const Tensor &value, const Tensor &divisor) {
  // Weights have four axes at most, but for volumes.
  for (uint64_t axes = 1; axes < uint64_t(1) << std::min<int64_t>(value.rank(), 5); ++axes)
    for (int power : {2, 1})
      if (areNorms(value, divisor, axes, power))
        return true;
  return false;
}

} // namespace

void mpt::warnFoldedNorms(ModuleOp module) {
  llvm::StringSet<> said; // evaluation has the same divisions
  module.walk([&](DivOp div) {
    auto read = div.getLhs().getDefiningOp<train::ReadOp>();
    auto divisor = div.getRhs().getDefiningOp<ConstantOp>();
    if (!read || !divisor || isa<SplatElementsAttr>(divisor.getValue()))
      return;
    auto state = module.lookupSymbol<train::StateOp>(read.getState());
    if (!state || state.getRole() != train::Role::parameter || state.getFrozen() || !state.getValueAttr() ||
        !isa<FloatType>(getElementTypeOrSelf(state.getType())))
      return;
    FailureOr<Tensor> value = Tensor::fromAttribute(state.getValueAttr(), div.getLoc());
    FailureOr<Tensor> numbers = Tensor::fromAttribute(cast<ElementsAttr>(divisor.getValue()), div.getLoc());
    if (failed(value) || failed(numbers) || value->shape() != numbers->shape() || !areNorms(*value, *numbers) ||
        !said.insert(state.getTensorName()).second)
      return;
    emitWarning(div.getLoc()) << "'" << state.getTensorName()
                              << "' trains, and is divided by numbers that the exporter "
                              << "has computed as its norms: they stay as they are; export with opset_version=18 or "
                                 "do_constant_folding=False, or give the module itself to mpt.compile";
  });
}
