// SPDX-License-Identifier: Apache-2.0
// --fusion-decompose: composites in simpler ops, and reductions in two stages.
// Matcher: the scales, magnitudes and casts by which a GELU ends in 8 bits.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Fusion/BlockUpdates.h"
#include "mpt/Fusion/ReductionStages.h"
#include "mpt/Interfaces/Bufferizable.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Precision/Numerics.h"
#include "passes/fusion/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace mpt {
#define GEN_PASS_DEF_DECOMPOSE
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Composites with a form on buffers stay whole. In it, contractions have these types alone.
bool isWholeCall(Operation &op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || !isa<Bufferizable>(op))
    return false;
  return semantics.getNumericClass() != NumericClass::Contraction ||
         llvm::all_of(llvm::concat<const Type>(op.getOperandTypes(), op.getResultTypes()), [](Type type) {
           Type element = getElementTypeOrSelf(type);
           return element.isF32() || element.isF16() || element.isBF16();
         });
}

/// Whether all that is made of `value` are its 8 bits, scaled or not, and its largest magnitude in 16 bits or fewer.
bool endsInEightBits(Value value, bool isRounded = false) {
  return !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (auto cast = dyn_cast<CastOp>(user)) {
      unsigned bits = elementOf(cast.getY()).getIntOrFloatBitWidth();
      return isa<FloatType>(elementOf(cast.getY())) &&
             (bits <= 8 || endsInEightBits(cast.getY(), isRounded || bits == 16));
    }
    if (auto reduce = dyn_cast<ReduceOp>(user))
      return isRounded && reduce.getKind() == ReduceKind::max;
    return isa<MulOp, AbsOp, ReshapeOp>(user) && endsInEightBits(user->getResult(0), isRounded);
  });
}

/// The loop form of GELU has the digits of 8 bits: it is for results of which no more is left.
bool isWholeGelu(Operation &op, bool onDevice) {
  auto gelu = dyn_cast<GeluOp>(op);
  unsigned bits = gelu ? elementOf(gelu.getY()).getIntOrFloatBitWidth() : 64;
  return onDevice && bits <= 32 && endsInEightBits(gelu.getY(), /*isRounded=*/bits == 16);
}

/// Replaces composites without a loop form, and the composites that they are made of.
LogicalResult decomposeComposites(func::FuncOp function, bool recurrences, bool coarseGelu) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      auto composite = dyn_cast<Decomposable>(op);
      bool hasLoops = isa<LoopLowering>(op) && (!isa<GeluOp>(op) || isWholeGelu(op, coarseGelu));
      if (!composite || hasLoops || (recurrences && isWholeCall(op)))
        continue;
      PartCarrier carrier(&op);
      OpBuilder builder(&op, &carrier);
      FailureOr<SmallVector<Value>> values = decomposeAccumulating(composite, builder);
      if (failed(values))
        return op.emitOpError() << "expected a decomposition into ops with loop forms";
      op.replaceAllUsesWith(*values);
      op.erase();
      changed = true;
    }
  }
  return success();
}

/// Kernels of ops that stand alone keep running values in the result's memory: there the result has the accumulator's
/// type, and is rounded once, after all that meets in it.
void widenRunningValues(Operation *op) {
  auto lowering = dyn_cast<LoopLowering>(op);
  std::optional<Accumulation> sums = accumulationOf(op);
  if (!lowering || !lowering.standsAlone() || !sums)
    return;
  Type acc = widest({Float32Type::get(op->getContext()), sums->in, sums->stated ? sums->stated.getAcc() : sums->in});
  if (acc == sums->out)
    return;
  OpBuilder builder(op);
  GraphBuilder b(builder, op->getLoc());
  IRMapping mapping;
  for (Value operand : op->getOperands())
    if (isa<FloatType>(tensorType(operand).getElementType())) {
      // A filled start stays one that kernels fill by themselves.
      SplatElementsAttr splat;
      bool filled = matchPattern(operand, m_Constant(&splat));
      mapping.map(operand,
                  filled ? b.splat(tensorType(operand).clone(acc), splat.getSplatValue<APFloat>().convertToDouble())
                         : b.cast(operand, acc));
    }
  Operation *wide = builder.clone(*op, mapping);
  Value result = wide->getResult(0);
  result.setType(tensorType(result).clone(acc));
  if (sums->stated)
    wide->setAttr(kNumericsAttr, NumericsAttr::get(op->getContext(), acc, acc, acc));
  op->getResult(0).replaceAllUsesWith(b.cast(result, sums->out));
  op->erase();
}

/// Erases ops that no result or write needs; decompositions make more than is used.
void eraseUnused(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

struct Decompose : mpt::impl::DecomposeBase<Decompose> {
  using DecomposeBase::DecomposeBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      // While an update is one op.
      numInBlocks += shapeAsBlocks(function);
      if (failed(decomposeComposites(function, recurrences, coarseGelu)))
        return signalPassFailure();
      for (Operation &op : llvm::make_early_inc_range(function.getBody().front()))
        widenRunningValues(&op);
      sharedSums ? formSharedSums(function) : splitReductions(function);
      eraseUnused(function);
    }
  }

private:
  void splitReductions(func::FuncOp function) {
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      numSplit += splitInBlocks(op);
  }

  void formSharedSums(func::FuncOp function) {
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      hoistFactors(op);
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      fuseMoments(op);
    moveBeforeReshapes(function);
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      numSplit += splitExtremum(op);
  }
};

} // namespace
