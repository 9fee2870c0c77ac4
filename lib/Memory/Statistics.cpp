// SPDX-License-Identifier: Apache-2.0
// Hands sums that convolutions gather to the fusions that want means and variances of their results.
#include "Statistics.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

constexpr int64_t fewElements = 8192, fewRows = 64; ///< below these another pass costs nothing to speak of
constexpr int64_t channelsTogether = 8;             ///< 16 bytes of channels, which fused convolutions want

/// 1 or 2 when `reduce` adds up that power of `argument`, else 0.
unsigned momentOf(ReduceOp reduce, Value argument) {
  if (reduce.getKind() != ReduceKind::mean && reduce.getKind() != ReduceKind::sum)
    return 0;
  if (throughCasts(reduce.getX(), /*widening=*/true) == argument)
    return 1;
  auto square = reduce.getX().getDefiningOp<MulOp>();
  return square && throughCasts(square.getLhs(), true) == argument && throughCasts(square.getRhs(), true) == argument
             ? 2
             : 0;
}

/// The reductions of a fusion that asks for nothing of `argument` but its first two moments over each channel.
SmallVector<std::pair<ReduceOp, unsigned>> momentsOf(FusionOp fusion, Value argument) {
  SmallVector<std::pair<ReduceOp, unsigned>> moments;
  Block &body = fusion.getBody().front();
  SmallVector<int64_t> axes = otherAxes(tensorType(argument).getRank(), {1});
  bool seen[3] = {};
  for (auto reduce : body.getOps<ReduceOp>()) {
    unsigned power = momentOf(reduce, argument);
    Type element = tensorType(reduce.getY()).getElementType();
    if (!power || reduce.getAxes() != ArrayRef<int64_t>(axes) || (!element.isF64() && !element.isF32()))
      return {};
    seen[power] = true;
    moments.push_back({reduce, power});
  }
  bool elements = llvm::any_of(fusion.getOutputs(), [&](Value output) {
    return tensorType(output).getNumElements() > tensorType(argument).getDimSize(1);
  });
  return seen[1] && seen[2] && !elements ? moments : SmallVector<std::pair<ReduceOp, unsigned>>();
}

/// Adds the sums to the fusion's operands and guards its reductions by them.
void useSums(FusionOp fusion, ArrayRef<std::pair<ReduceOp, unsigned>> moments, ValueRange sums) {
  Block &body = fusion.getBody().front();
  Location loc = fusion.getLoc();
  ReduceOp first = moments.front().first;
  RankedTensorType x = tensorType(first.getX());
  double count = static_cast<double>(x.getNumElements() / x.getDimSize(1));
  OpBuilder builder(body.getParentOp()->getContext());
  builder.setInsertionPointToStart(&body);
  GraphBuilder b(builder, loc);
  Value given[2], means[2];
  for (auto [i, sum] : llvm::enumerate(sums)) {
    fusion.getInputsMutable().append(sum);
    given[i] = b.cast(body.addArgument(sum.getType(), loc), builder.getF64Type());
    means[i] = b.div(given[i], b.splatLike(given[i], count));
  }
  // NaN compares as false.
  Value variance = b.sub(means[1], b.mul(means[0], means[0]));
  Value sound = b.compare(Predicate::ge, variance, b.mul(means[1], kSoundShare));
  for (auto [reduce, power] : moments) {
    builder.setInsertionPointAfter(reduce);
    bool mean = reduce.getKind() == ReduceKind::mean;
    Value known = b.cast((mean ? means : given)[power - 1], tensorType(reduce.getY()).getElementType());
    Value chosen = b.select(sound, known, reduce.getY());
    reduce.getY().replaceAllUsesExcept(chosen, chosen.getDefiningOp());
  }
}

} // namespace

Value mpt::memory::throughCasts(Value value, bool widening) {
  while (auto cast = value.getDefiningOp<CastOp>()) {
    auto from = dyn_cast<FloatType>(tensorType(cast.getX()).getElementType());
    auto to = dyn_cast<FloatType>(tensorType(value).getElementType());
    if (!from || !to || (widening && from.getWidth() >= to.getWidth()))
      break;
    value = cast.getX();
  }
  return value;
}

bool mpt::memory::leavesSums(RankedTensorType summed, RankedTensorType other, Type filter, int64_t groups) {
  Type element = summed.getElementType();
  int64_t channels = summed.getDimSize(1), rows = channels ? summed.getNumElements() / channels : 0;
  return (element.isF16() || element.isBF16()) && other.getElementType() == element && filter == element &&
         groups == 1 && other.getDimSize(1) % channelsTogether == 0 && channels % channelsTogether == 0 &&
         rows >= fewRows && summed.getNumElements() >= fewElements;
}

ChannelSums mpt::memory::gatherStatistics(func::FuncOp function) {
  ChannelSums result;
  for (auto conv : function.getOps<ConvOp>()) {
    if (!leavesSums(tensorType(conv.getY()), tensorType(conv.getX()), tensorType(conv.getW()).getElementType(),
                    conv.getGroups()))
      continue;
    for (OpOperand &use : conv.getY().getUses()) {
      auto fusion = dyn_cast<FusionOp>(use.getOwner());
      if (!fusion)
        continue;
      auto moments = momentsOf(fusion, fusion.getBody().front().getArgument(use.getOperandNumber()));
      if (moments.empty())
        continue;
      OpBuilder builder(fusion);
      builder.setInsertionPointAfter(conv);
      Type type = RankedTensorType::get({tensorType(conv.getY()).getDimSize(1)}, builder.getF32Type());
      auto sums = rt::ChannelSumsOp::create(builder, conv.getLoc(), type, type, conv.getY(), ValueRange());
      useSums(fusion, moments, sums->getResults());
      result[conv] = sums;
      break;
    }
  }
  return result;
}
