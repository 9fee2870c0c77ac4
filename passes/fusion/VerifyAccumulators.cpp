// SPDX-License-Identifier: Apache-2.0
// --fusion-verify-accumulators: fused and library sums accumulate in the types that phase precision chose.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Evaluation/TensorCoreProducts.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Precision/Numerics.h"
#include "mpt/Precision/Settings.h"
#include "passes/fusion/Passes.h"

#include "llvm/ADT/StringExtras.h"

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

/// Sums of 8-bit products may have fewer bits than FP32 while few products meet in them.
LogicalResult verifyOnCore(Operation *op, const TensorCore &core) {
  auto gemm = dyn_cast<GemmLike>(op);
  std::optional<ContractionSums> how = gemm ? sumsOnTensorCore(op, core) : std::nullopt;
  if (!how || how->sums.addsUpInF32(gemm.getReductionLength()))
    return success();
  return op->emitOpError() << "expected partial sums of at most 128 products, which add up in 'f32', got one sum of "
                           << gemm.getReductionLength() << " products in " << how->sums.resultBits << " bits on "
                           << core.name() << ": widen the operands, or leave fast-sums";
}

struct VerifyAccumulators : mpt::impl::VerifyAccumulatorsBase<VerifyAccumulators> {
  using VerifyAccumulatorsBase::VerifyAccumulatorsBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<SmallVector<TensorCore>> cores = namedCores();
    if (failed(cores))
      return signalPassFailure();
    // Without a policy every accumulator that is not stated is FP32.
    bool decided = hasAttr<MPTDialect::PolicyAttrHelper>(module);
    Type accumulator = PrecisionSettings::of(module).accumulate;
    bool fine = true;
    module.walk([&](Operation *op) {
      fine &= succeeded(verifyAccumulator(op, accumulator, decided && !isExtremum(op)));
      fine &= succeeded(op->getParentOfType<FusionOp>() ? verifyResultInMemory(op) : verifyInRuntime(op));
      for (const TensorCore &core : *cores)
        fine &= succeeded(verifyOnCore(op, core));
    });
    markAllAnalysesPreserved();
    if (!fine)
      signalPassFailure();
  }

private:
  FailureOr<SmallVector<TensorCore>> namedCores() {
    SmallVector<TensorCore> cores;
    for (const std::string &name : tensorCores) {
      std::optional<TensorCore> core = TensorCore::named(name);
      if (!core)
        return getOperation().emitError()
               << "expected a Tensor Core of " << llvm::join(TensorCore::names(), ", ") << ", got '" << name << "'";
      cores.push_back(std::move(*core));
    }
    return cores;
  }
};

} // namespace
