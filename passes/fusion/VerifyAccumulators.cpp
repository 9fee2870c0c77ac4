// SPDX-License-Identifier: Apache-2.0
// --fusion-verify-accumulators: fused and library sums accumulate in the types that phase precision chose.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/Numerics.h"
#include "mpt/Precision/Settings.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_VERIFYACCUMULATORS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Extrema round nothing: the largest magnitude of a narrow tensor, for its scale or the finite check, is exact.
bool isExtremum(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && (reduce.getKind() == ReduceKind::max || reduce.getKind() == ReduceKind::min);
}

/// A kernel that one op has to itself keeps running values in the result's memory.
LogicalResult verifyResultInMemory(Operation *op) {
  auto lowering = dyn_cast<LoopLowering>(op);
  std::optional<Accumulation> found = accumulationOf(op);
  if (!found || !lowering || !lowering.standsAlone())
    return success();
  Type needed = widest({Float32Type::get(op->getContext()), found->stated ? found->stated.getAcc() : found->in});
  if (!isNarrower(found->out, needed))
    return success();
  return op->emitOpError() << "expected a result of " << needed << ", in which its kernel adds up, got " << found->out
                           << ": run fusion-decompose";
}

/// Runtimes accumulate GEMMs and convolutions in FP32, or in FP64 where operands are: more would be lost without a
/// word.
LogicalResult verifyInRuntime(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  std::optional<Accumulation> found = accumulationOf(op);
  if (!found || !found->stated || !semantics || semantics.getNumericClass() != NumericClass::Contraction)
    return success();
  Type offered = widest({Float32Type::get(op->getContext()), found->in});
  if (!isNarrower(offered, found->stated.getAcc()))
    return success();
  return op->emitOpError() << "expected an accumulator of " << offered << ", which runtimes have, got "
                           << found->stated.getAcc() << ": widen the operands";
}

struct VerifyAccumulators : mpt::impl::VerifyAccumulatorsBase<VerifyAccumulators> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    // Without a policy every accumulator that is not stated is FP32.
    bool decided = hasAttr<MPTDialect::PolicyAttrHelper>(module);
    Type accumulator = PrecisionSettings::of(module).accumulate;
    bool fine = true;
    module.walk([&](Operation *op) {
      fine &= succeeded(verifyAccumulator(op, accumulator, decided && !isExtremum(op)));
      fine &= succeeded(op->getParentOfType<FusionOp>() ? verifyResultInMemory(op) : verifyInRuntime(op));
    });
    markAllAnalysesPreserved();
    if (!fine)
      signalPassFailure();
  }
};

} // namespace
