// SPDX-License-Identifier: Apache-2.0
// --library-fuse-gradient-sums: backward convolutions leave the sums that the gradient of a batch norm wants.
// Matcher: fusions that sum a gradient by channel behind the ReLU of a batch norm, and the norm's five parts.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Library/ChannelSums.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define DEBUG_TYPE "library-fuse-gradient-sums"

namespace mpt {
#define GEN_PASS_DEF_FUSEGRADIENTSUMS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Input, mean, 1/deviation, scale and shift of a batch norm: operands of one fusion, or the values that it is given
/// for them.
using Normalization = std::array<Value, 5>;

/// One FP32 number a channel, repeated over the elements of `value`.
Value byChannel(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast || broadcast.getDims() != ArrayRef<int64_t>{1})
    return {};
  RankedTensorType type = tensorType(broadcast.getX());
  return type.getRank() == 1 && type.getElementType().isF32() && isa<BlockArgument>(broadcast.getX()) ? broadcast.getX()
                                                                                                      : Value();
}

/// A value and the operand of `op` that repeats by channel, whichever side it is on.
template <typename Op> std::pair<Value, Value> withChannel(Value value) {
  auto op = value.getDefiningOp<Op>();
  if (!op)
    return {};
  if (Value vector = byChannel(op.getRhs()))
    return {op.getLhs(), vector};
  Value vector = isa<SubOp>(op.getOperation()) ? Value() : byChannel(op.getLhs());
  return {vector ? Value(op.getRhs()) : Value(), vector};
}

/// (input - mean) * inverse
bool isNormalized(Value value, Normalization &norm) {
  auto [centred, inverse] = withChannel<MulOp>(value);
  auto [input, mean] = centred ? withChannel<SubOp>(centred) : std::pair<Value, Value>();
  if (!input || !isa<BlockArgument>(throughCasts(input, /*widening=*/true)))
    return false;
  norm[0] = throughCasts(input, /*widening=*/true);
  norm[1] = mean;
  norm[2] = inverse;
  return true;
}

/// The normalization behind the ReLU that `op` masks a gradient by.
std::optional<Normalization> maskedBy(ReluBackwardOp op) {
  auto relu = op.getRhs().getDefiningOp<ReluOp>();
  if (!relu)
    return std::nullopt;
  Normalization norm;
  auto [scaled, shift] = withChannel<AddOp>(throughCasts(relu.getX(), /*widening=*/false));
  auto [normal, scale] = scaled ? withChannel<MulOp>(scaled) : std::pair<Value, Value>();
  if (!normal || !isNormalized(normal, norm))
    return std::nullopt;
  norm[3] = scale;
  norm[4] = shift;
  return norm;
}

/// The normalization by which a fusion masks its operand, if it does nothing else with it; as values outside.
std::optional<Normalization> maskedBy(FusionOp fusion, unsigned operand) {
  Value argument = fusion.getBody().front().getArgument(operand);
  std::optional<Normalization> norm;
  for (OpOperand &use : argument.getUses()) {
    auto mask = dyn_cast<ReluBackwardOp>(use.getOwner());
    auto found = mask && use.getOperandNumber() == 0 ? maskedBy(mask) : std::nullopt;
    if (!found || (norm && *norm != *found))
      return std::nullopt;
    norm = found;
  }
  if (norm)
    for (Value &part : *norm)
      part = fusion.getInputs()[cast<BlockArgument>(part).getArgNumber()];
  return norm;
}

/// A reduction's terms as a product: the masked gradient, the normalized input or not, factors by channel.
struct Term {
  ReduceOp reduce;
  unsigned gradients = 0, inputs = 0;
  SmallVector<Value> vectors;

  bool collect(Value value, Value gradient, const Normalization &norm) {
    value = throughCasts(value, /*widening=*/true);
    if (auto mask = value.getDefiningOp<ReluBackwardOp>(); mask && mask.getLhs() == gradient)
      return ++gradients == 1;
    Normalization found = norm;
    if (isNormalized(value, found) && found == norm)
      return ++inputs == 1;
    if (Value vector = byChannel(value)) {
      vectors.push_back(vector);
      return true;
    }
    auto product = value.getDefiningOp<MulOp>();
    return product && collect(product.getLhs(), gradient, norm) && collect(product.getRhs(), gradient, norm);
  }
};

/// The reductions of a fusion that makes nothing but sums of this kind, and the normalization.
SmallVector<Term> sumsOf(FusionOp fusion, unsigned operand) {
  Block &body = fusion.getBody().front();
  BlockArgument gradient = body.getArgument(operand);
  RankedTensorType type = tensorType(gradient);
  if (llvm::any_of(fusion.getOutputs(),
                   [&](Value output) { return tensorType(output).getNumElements() > type.getDimSize(1); }))
    return {};
  auto mask = dyn_cast<ReluBackwardOp>(*gradient.getUsers().begin());
  std::optional<Normalization> norm = mask ? maskedBy(mask) : std::nullopt;
  SmallVector<Term> terms;
  for (auto reduce : body.getOps<ReduceOp>()) {
    Term term;
    term.reduce = reduce;
    Type element = tensorType(reduce.getY()).getElementType();
    if (!norm || (reduce.getKind() != ReduceKind::sum && reduce.getKind() != ReduceKind::mean) ||
        reduce.getAxes() != ArrayRef<int64_t>(otherAxes(type.getRank(), {1})) ||
        (!element.isF32() && !element.isF64()) || !term.collect(reduce.getX(), gradient, *norm) || !term.gradients)
      return {};
    terms.push_back(term);
  }
  return terms;
}

/// Adds the sums to the fusion's operands and guards its reductions by them.
void useSums(FusionOp fusion, ArrayRef<Term> terms, ValueRange sums) {
  OpBuilder builder(fusion.getContext());
  builder.setInsertionPointToStart(&fusion.getBody().front());
  GraphBuilder b(builder, fusion.getLoc());
  Value given[2] = {takeSum(fusion, sums[0], builder), Value()};
  given[1] = takeSum(fusion, sums[1], builder);
  // NaN, in either, differs from itself.
  Value both = b.add(given[0], given[1]), sound = b.compare(Predicate::eq, both, both);
  for (const Term &term : terms) {
    ReduceOp reduce = term.reduce;
    builder.setInsertionPointAfter(reduce);
    Value known = given[term.inputs];
    for (Value vector : term.vectors)
      known = b.mul(known, b.cast(vector, builder.getF64Type()));
    RankedTensorType x = tensorType(reduce.getX());
    const int64_t count = x.getNumElements() / x.getDimSize(1);
    if (reduce.getKind() == ReduceKind::mean)
      known = b.mul(known, 1 / static_cast<double>(count));
    known = b.cast(known, tensorType(reduce.getY()).getElementType());
    guardReduction(reduce, sound, known, builder);
  }
}

struct FuseGradientSums : mpt::impl::FuseGradientSumsBase<FuseGradientSums> {
  using FuseGradientSumsBase::FuseGradientSumsBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        fuse(function);
  }

private:
  void fuse(func::FuncOp function) {
    for (auto conv : llvm::make_early_inc_range(function.getOps<library::ConvOp>()))
      if (conv.getKind() == library::ConvKind::backward_data)
        numFused += succeeded(fuse(conv));
  }
  LogicalResult fuse(library::ConvOp conv) const {
    std::string why = whyNoChannelSums(tensorType(conv.getX()), tensorType(conv.getY()),
                                       tensorType(conv.getW()).getElementType(), conv.getGroups(), channelUnit);
    if (!why.empty())
      return refuse(DEBUG_TYPE, conv) << "no channel sums: " << why;
    std::optional<Normalization> norm;
    FusionOp summing;
    SmallVector<Term> terms;
    for (OpOperand &use : conv.getD().getUses()) {
      auto fusion = dyn_cast<FusionOp>(use.getOwner());
      auto found = fusion ? maskedBy(fusion, use.getOperandNumber()) : std::nullopt;
      if (!found || (norm && *norm != *found))
        return refuse(DEBUG_TYPE, conv)
               << "no channel sums: expected every reader to mask it by the ReLU of one batch norm, got another reader";
      norm = found;
      if (SmallVector<Term> sums = sumsOf(fusion, use.getOperandNumber()); !sums.empty() && !summing) {
        summing = fusion;
        terms = std::move(sums);
      }
    }
    if (!summing)
      return refuse(DEBUG_TYPE, conv)
             << "no channel sums: expected a kernel that makes nothing but sums by channel of it, got none";
    auto isEarlier = [&](Value part) {
      Operation *op = part.getDefiningOp();
      return !op || (op->getBlock() == conv->getBlock() && op->isBeforeInBlock(conv));
    };
    if (!llvm::all_of(*norm, isEarlier))
      return refuse(DEBUG_TYPE, conv)
             << "no channel sums: expected the parts of the norm before the convolution, got them behind it";
    if (norm->front().getType() != conv.getD().getType())
      return refuse(DEBUG_TYPE, conv)
             << "no channel sums: expected an input of the norm of the gradient's type, got another";
    useSums(summing, terms, conv.replaceByCallWithSums(*norm).getSums());
    return success();
  }
};

} // namespace
