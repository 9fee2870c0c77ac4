// SPDX-License-Identifier: Apache-2.0
// --library-fuse-channel-sums: convolutions leave the sums by channel that batch norms and their gradients want.
// Matcher: a batch norm of a convolution's result; the gradient of one behind a ReLU, of which a convolution makes the
// gradient.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Fusion/ReductionStages.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Precision/SavedNodes.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#define DEBUG_TYPE "library-fuse-channel-sums"

namespace mpt {
#define GEN_PASS_DEF_FUSECHANNELSUMS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// The least share of the mean square that the variance must be: E x^2 - (E x)^2 then loses at most 5 of the 24 bits of
/// the FP32 sums, and the rest exceeds the digits of 16-bit elements.
constexpr double kSoundShare = 1.0 / 32;
constexpr int64_t leastElements = 8192, leastRows = 64; ///< below these another pass costs nothing to speak of

/// `value` before conversions between floats; with `widening`, before exact ones alone.
Value throughCasts(Value value, bool widening) {
  while (auto cast = value.getDefiningOp<CastOp>()) {
    auto from = dyn_cast<FloatType>(elementOf(cast.getX())), to = dyn_cast<FloatType>(elementOf(value));
    if (!from || !to || (widening && from.getWidth() >= to.getWidth()))
      break;
    value = cast.getX();
  }
  return value;
}

/// The type in which a call reads an operand: fusion-widen-operands makes FP16 of 8 bits, which no convolution takes.
Type readType(Value operand) {
  Type type = elementOf(operand);
  return type.getIntOrFloatBitWidth() == 8 ? Float16Type::get(type.getContext()) : type;
}

/// Why no library's fused convolution leaves sums of `summed` beside making it of `other` and `filter`, in channels of
/// multiples of `unit`; empty where one does.
std::string whyNoSums(Value summed, Value other, Value filter, int64_t groups, int64_t unit) {
  Type element = elementOf(summed);
  int64_t channels = shapeOf(summed)[1], rows = channels ? countOf(summed) / channels : 0;
  if (!(element.isF16() || element.isBF16()) || readType(other) != element || readType(filter) != element)
    return "expected tensors of one 16-bit type, got others";
  if (groups != 1)
    return "expected a convolution without groups, got one with groups";
  if (shapeOf(other)[1] % unit != 0 || channels % unit != 0)
    return ("expected channels in multiples of " + Twine(unit) + ", got others").str();
  if (rows < leastRows || countOf(summed) < leastElements)
    return ("expected " + Twine(leastRows) + " elements a channel and " + Twine(leastElements) + " in all, got fewer")
        .str();
  return "";
}

LogicalResult noSums(Operation *op, const Twine &why) { return refuse(DEBUG_TYPE, op) << "no channel sums: " << why; }

/// Puts a library call in the place of `conv`, and returns the sums that it leaves, in FP64 at `b`.
template <typename Op> std::array<Value, 2> sumsBeside(Op conv, ValueRange norm, GraphBuilder &b) {
  OpBuilder builder(conv);
  auto call = library::ConvOp::create(builder, conv.getLoc(), conv);
  conv.getY().replaceAllUsesWith(call.getD());
  conv.erase();
  call = call.replaceByCallWithSums(norm);
  Type wide = b.builder.getF64Type();
  return {b.cast(call.getSums()[0], wide), b.cast(call.getSums()[1], wide)};
}

/// Statistics of a convolution's result come from the sums that the call leaves, where they have the digits. Kernels
/// make the selected reductions in need alone.
LogicalResult fuse(BatchNormOp norm, int64_t unit) {
  auto conv = throughCasts(norm.getX(), /*widening=*/true).getDefiningOp<ConvOp>();
  if (!conv)
    return noSums(norm, "expected a norm of what a convolution makes, got another one");
  if (std::string why = whyNoSums(conv.getY(), conv.getX(), conv.getW(), conv.getGroups(), unit); !why.empty())
    return noSums(conv, why);
  OpBuilder builder(norm);
  GraphBuilder b(builder, norm.getLoc());
  const int64_t ofChannel = countOf(norm.getX()) / countOf(norm.getMean());
  const auto count = static_cast<double>(ofChannel);
  std::array<Value, 2> means = sumsBeside(conv, {}, b);
  for (Value &mean : means)
    mean = b.mul(mean, 1 / count); // a division of FP64 takes a device thirty instructions
  Value given = b.sub(means[1], b.mul(means[0], means[0]));
  // NaN compares as false.
  Value sound = b.compare(Predicate::ge, given, b.mul(means[1], kSoundShare));
  FailureOr<SmallVector<Value>> values = decomposeAccumulating(norm, builder);
  if (failed(values))
    return failure();
  auto own = cast<ReduceOp>((*values)[1].getDefiningOp());
  builder.setInsertionPoint(own);
  auto statistics = meanAndVariance(b, own.getX(), own.getAxes(), [&](Value mean, unsigned power) {
    return b.select(sound, means[power - 1], mean);
  });
  for (auto [value, better] : {std::pair(&(*values)[1], statistics.first), {&(*values)[2], statistics.second}}) {
    value->replaceAllUsesWith(better);
    *value = better;
  }
  norm->replaceAllUsesWith(*values);
  norm->erase();
  return success();
}

/// The batch norm whose gradient, behind the ReLU that `mask` is of, is `gradient`; null without one.
BatchNormOp normBefore(ReluBackwardOp mask, BatchNormBackwardOp gradient) {
  auto relu = mask.getRhs().getDefiningOp<ReluOp>();
  auto norm = relu ? throughCasts(relu.getX(), /*widening=*/false).getDefiningOp<BatchNormOp>() : BatchNormOp();
  bool same = norm && norm.getX() == gradient.getX() && norm.getScale() == gradient.getScale() &&
              norm.getMean() == gradient.getMean() && norm.getVariance() == gradient.getVariance();
  return same ? norm : BatchNormOp();
}

/// Whether `reader` alone reads `value`, or conversions of it that only it reads.
bool isReadBy(Value value, Operation *reader) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return user == reader || (isa<CastOp>(user) && isReadBy(user->getResult(0), reader));
  });
}

/// Whether kernels that read `value` make it themselves from one other tensor, so that it need not be in memory.
bool isMadeByReaders(Value value) {
  auto lowering = value.getDefiningOp<LoopLowering>();
  if (!lowering || isViewOp(lowering) || lowering.standsAlone() ||
      llvm::any_of(value.getUsers(), [](Operation *user) { return !isa<LoopLowering, Decomposable>(user); }))
    return false;
  llvm::SmallPtrSet<void *, 2> tensors;
  for (OpOperand &operand : lowering->getOpOperands()) {
    if (!lowering.readsOwnIndex(operand.getOperandNumber()))
      return false;
    if (countOf(operand.get()) == countOf(value) && !isBroadcast(operand.get().getDefiningOp()))
      tensors.insert(operand.get().getAsOpaquePointer());
  }
  return tensors.size() < 2;
}

/// The parts of the norm by whose result, through a ReLU, the gradient is masked, as `library.conv` takes them; empty,
/// after saying why, where no call leaves the sums of this gradient.
SmallVector<Value> partsFor(BatchNormBackwardOp gradient, ReluBackwardOp mask, ConvBackwardDataOp conv,
                            const SavedNodes &saved) {
  auto no = [&](const Twine &why) { return (void)noSums(conv, why), SmallVector<Value>(); };
  BatchNormOp norm = normBefore(mask, gradient);
  if (!norm || !llvm::all_of(conv->getUsers(), [&](Operation *user) { return user == mask; }))
    return no("expected every reader to mask it by the ReLU of one batch norm, got another reader");
  if (!isReadBy(mask.getResult(), gradient))
    return no("expected the gradient of the norm alone to read the masked gradient, got another reader");
  if (!norm->isBeforeInBlock(conv))
    return no("expected the norm before the convolution, got it behind");
  Value input = throughCasts(norm.getX(), /*widening=*/true);
  if (input.getType() != conv.getY().getType())
    return no("expected an input of the norm of the gradient's type, got another");
  if (llvm::any_of(ValueRange{input, norm.getScale(), norm.getBias()}, isMadeByReaders))
    return no("expected parts of the norm that are in memory, got one that its readers make");
  if (saved.areCoded(nodeName(input.getLoc())))
    return no("expected an input of the norm that waits as it is, got one that waits as codes");
  OpBuilder builder(conv);
  GraphBuilder b(builder, gradient.getLoc());
  Value inverse = b.make<RsqrtOp>(b.add(norm.getVariance(), norm.getEpsilon().convertToDouble()));
  SmallVector<Value> parts{input, norm.getMean(), inverse, norm.getScale(), norm.getBias()};
  if (!llvm::all_of(ArrayRef(parts).drop_front(), [](Value part) { return elementOf(part).isF32(); }))
    return no("expected the other parts of the norm in FP32, got narrower ones");
  return parts;
}

/// Sums of a norm's gradient come from the convolution that makes the gradient behind the ReLU, unless they are NaN.
LogicalResult fuse(BatchNormBackwardOp gradient, int64_t unit, const SavedNodes &saved) {
  Value dy = throughCasts(gradient.getDy(), /*widening=*/true);
  auto mask = dy.getDefiningOp<ReluBackwardOp>();
  auto conv = mask ? mask.getLhs().getDefiningOp<ConvBackwardDataOp>() : ConvBackwardDataOp();
  if (!conv)
    return noSums(gradient, "expected the gradient of a ReLU, of what a convolution makes, got another one");
  if (std::string why = whyNoSums(conv.getY(), conv.getDy(), conv.getW(), conv.getGroups(), unit); !why.empty())
    return noSums(conv, why);
  SmallVector<Value> parts = partsFor(gradient, mask, conv, saved);
  if (parts.empty())
    return failure();
  OpBuilder builder(gradient);
  GraphBuilder b(builder, gradient.getLoc());
  std::array<Value, 2> given = sumsBeside(conv, parts, b);
  // NaN, in either, differs from itself.
  Value both = b.add(given[0], given[1]), sound = b.compare(Predicate::eq, both, both);
  FailureOr<SmallVector<Value>> values = decomposeAccumulating(gradient, builder);
  if (failed(values))
    return failure();
  gradient->replaceAllUsesWith(*values);
  auto reductions = [&] {
    SmallVector<ReduceOp> found;
    for (Operation *op = sound.getDefiningOp(); op != gradient; op = op->getNextNode())
      if (auto reduce = dyn_cast<ReduceOp>(op))
        found.push_back(reduce);
    return found;
  };
  // Without factors by channel, each adds up the gradient or its product with the normalized input.
  for (ReduceOp reduce : reductions())
    hoistFactors(reduce);
  for (ReduceOp reduce : reductions()) {
    builder.setInsertionPointAfter(reduce);
    Value known = given[throughCasts(reduce.getX(), /*widening=*/true) == dy ? 0 : 1];
    Value chosen = b.select(sound, b.cast(known, elementOf(reduce.getY())), reduce.getY());
    reduce.getY().replaceAllUsesExcept(chosen, chosen.getDefiningOp());
  }
  gradient->erase();
  return success();
}

struct FuseChannelSums : mpt::impl::FuseChannelSumsBase<FuseChannelSums> {
  using FuseChannelSumsBase::FuseChannelSumsBase;

  void runOnOperation() override {
    SavedNodes saved(PrecisionSettings::of(getOperation()), codeAll);
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      // While the norms are whole by which they are masked.
      for (auto gradient : llvm::make_early_inc_range(function.getOps<BatchNormBackwardOp>()))
        numFused += succeeded(fuse(gradient, channelUnit, saved));
      for (auto norm : llvm::make_early_inc_range(function.getOps<BatchNormOp>()))
        numFused += succeeded(fuse(norm, channelUnit));
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
