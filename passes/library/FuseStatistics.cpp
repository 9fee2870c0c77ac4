// SPDX-License-Identifier: Apache-2.0
// --library-fuse-statistics: calls of convolutions leave the sums that batch norms want of their results.
// Matcher: fusions that reduce a convolution's result to its first two moments by channel, through casts and squares.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Library/ChannelSums.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define DEBUG_TYPE "library-fuse-statistics"

namespace mpt {
#define GEN_PASS_DEF_FUSESTATISTICS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// The least share of the mean square that the variance must be: E x^2 - (E x)^2 then loses at most 5 of the 24 bits of
/// the FP32 sums, and the rest exceeds the digits of 16-bit elements.
constexpr double kSoundShare = 1.0 / 32;

/// A reduction of a convolution's result, and the power of the result that it adds up.
struct Moment {
  ReduceOp reduce;
  unsigned power;
};

/// 1 or 2 when `reduce` adds up that power of `argument`, else 0.
unsigned powerOf(ReduceOp reduce, Value argument) {
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
SmallVector<Moment> momentsOf(FusionOp fusion, Value argument) {
  SmallVector<Moment> moments;
  SmallVector<int64_t> axes = otherAxes(tensorType(argument).getRank(), {1});
  bool seen[3] = {};
  for (auto reduce : fusion.getBody().front().getOps<ReduceOp>()) {
    unsigned power = powerOf(reduce, argument);
    Type element = tensorType(reduce.getY()).getElementType();
    if (!power || reduce.getAxes() != ArrayRef<int64_t>(axes) || (!element.isF64() && !element.isF32()))
      return {};
    seen[power] = true;
    moments.push_back({reduce, power});
  }
  bool elements = llvm::any_of(fusion.getOutputs(), [&](Value output) {
    return tensorType(output).getNumElements() > tensorType(argument).getDimSize(1);
  });
  return seen[1] && seen[2] && !elements ? moments : SmallVector<Moment>();
}

/// Adds the sums to the fusion's operands and guards its reductions by them.
void useSums(FusionOp fusion, ArrayRef<Moment> moments, ValueRange sums) {
  ReduceOp first = moments.front().reduce;
  RankedTensorType x = tensorType(first.getX());
  const int64_t elements = x.getNumElements() / x.getDimSize(1);
  const auto count = static_cast<double>(elements);
  OpBuilder builder(fusion.getContext());
  builder.setInsertionPointToStart(&fusion.getBody().front());
  GraphBuilder b(builder, fusion.getLoc());
  Value given[2], means[2];
  for (auto [i, sum] : llvm::enumerate(sums)) {
    given[i] = takeSum(fusion, sum, builder);
    means[i] = b.mul(given[i], 1 / count); // a division of FP64 takes a device thirty instructions
  }
  // NaN compares as false.
  Value variance = b.sub(means[1], b.mul(means[0], means[0]));
  Value sound = b.compare(Predicate::ge, variance, b.mul(means[1], kSoundShare));
  for (auto [reduce, power] : moments) {
    builder.setInsertionPointAfter(reduce);
    bool mean = reduce.getKind() == ReduceKind::mean;
    Value known = b.cast((mean ? means : given)[power - 1], tensorType(reduce.getY()).getElementType());
    guardReduction(reduce, sound, known, builder);
  }
}

struct FuseStatistics : mpt::impl::FuseStatisticsBase<FuseStatistics> {
  using FuseStatisticsBase::FuseStatisticsBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        fuse(function);
  }

private:
  void fuse(func::FuncOp function) {
    for (auto conv : llvm::make_early_inc_range(function.getOps<library::ConvOp>()))
      if (conv.getKind() == library::ConvKind::forward)
        numFused += succeeded(fuse(conv));
  }
  LogicalResult fuse(library::ConvOp conv) const {
    std::string why = whyNoChannelSums(tensorType(conv.getY()), tensorType(conv.getX()),
                                       tensorType(conv.getW()).getElementType(), conv.getGroups(), channelUnit);
    if (!why.empty())
      return refuse(DEBUG_TYPE, conv) << "no channel sums: " << why;
    for (OpOperand &use : conv.getY().getUses()) {
      auto fusion = dyn_cast<FusionOp>(use.getOwner());
      if (!fusion)
        continue;
      auto moments = momentsOf(fusion, fusion.getBody().front().getArgument(use.getOperandNumber()));
      if (moments.empty())
        continue;
      useSums(fusion, moments, conv.replaceByCallWithSums({}).getSums());
      return success();
    }
    return refuse(DEBUG_TYPE, conv) << "no channel sums: expected a kernel that makes nothing but means and mean "
                                       "squares by channel of it, got none";
  }
};

} // namespace
