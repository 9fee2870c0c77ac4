// SPDX-License-Identifier: Apache-2.0
// Helpers of the passes that fuse statistics and gradient sums into convolutions.
#include "mpt/Library/ChannelSums.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t fewElements = 8192, fewRows = 64; ///< below these another pass costs nothing to speak of

} // namespace

std::string mpt::whyNoChannelSums(RankedTensorType summed, RankedTensorType other, Type filter, int64_t groups,
                                  int64_t unit) {
  Type element = summed.getElementType();
  int64_t channels = summed.getDimSize(1), rows = channels ? summed.getNumElements() / channels : 0;
  if (!(element.isF16() || element.isBF16()) || other.getElementType() != element || filter != element)
    return "expected tensors of one 16-bit type, got others";
  if (groups != 1)
    return "expected a convolution without groups, got one with groups";
  if (other.getDimSize(1) % unit != 0 || channels % unit != 0)
    return ("expected channels in multiples of " + Twine(unit) + ", got others").str();
  if (rows < fewRows || summed.getNumElements() < fewElements)
    return ("expected " + Twine(fewRows) + " elements a channel and " + Twine(fewElements) + " in all, got fewer")
        .str();
  return "";
}

Value mpt::throughCasts(Value value, bool widening) {
  while (auto cast = value.getDefiningOp<CastOp>()) {
    auto from = dyn_cast<FloatType>(tensorType(cast.getX()).getElementType());
    auto to = dyn_cast<FloatType>(tensorType(value).getElementType());
    if (!from || !to || (widening && from.getWidth() >= to.getWidth()))
      break;
    value = cast.getX();
  }
  return value;
}

Value mpt::takeSum(FusionOp fusion, Value sum, OpBuilder &builder) {
  fusion.getInputsMutable().append(sum);
  Value argument = fusion.getBody().front().addArgument(sum.getType(), fusion.getLoc());
  return GraphBuilder(builder, fusion.getLoc()).cast(argument, builder.getF64Type());
}

void mpt::guardReduction(ReduceOp reduce, Value sound, Value known, OpBuilder &builder) {
  GraphBuilder b(builder, reduce->getParentOp()->getLoc());
  Value chosen = b.select(sound, known, reduce.getY());
  reduce.getY().replaceAllUsesExcept(chosen, chosen.getDefiningOp());
}
