// SPDX-License-Identifier: Apache-2.0
// precision-verify: the rules that no later pass may rely on being kept by chance.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/Numerics.h"
#include "mpt/Precision/ScaleFlow.h"
#include "mpt/Precision/Settings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_VERIFY
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
bool isNarrowFloat(Type type) {
  Type element = getElementTypeOrSelf(type);
  return isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
}

class Verify : public mpt::impl::VerifyBase<Verify> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    settings = PrecisionSettings::of(module);
    scaling = settings.scaling;
    accumulator = settings.accumulate;
    bool fine = true;
    for (auto state : module.getOps<train::StateOp>()) {
      states[state.getSymNameAttr()] = state;
      if (state.getRole() == train::Role::master && state.getOfAttr())
        mastered.insert(state.getOfAttr());
    }
    module.walk([&](train::WriteOp write) { written.insert(write.getStateAttr().getAttr()); });
    for (auto state : module.getOps<train::StateOp>())
      fine &= succeeded(verifyState(state));
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        fine &= succeeded(verifyFunction(function));
    markAllAnalysesPreserved();
    if (!fine)
      signalPassFailure();
  }

private:
  LogicalResult verifyState(train::StateOp state) {
    if (state.getRole() == train::Role::parameter) {
      if (isNarrowFloat(state.getType()) && written.contains(state.getSymNameAttr()) &&
          !mastered.contains(state.getSymNameAttr()) && getElementTypeOrSelf(state.getType()) != settings.master)
        return state.emitOpError() << "expected a master of " << state.getSymName()
                                   << ", which is trained and stored as " << getElementTypeOrSelf(state.getType())
                                   << ": run precision-master-weights";
    } else if (isNarrowFloat(state.getType()) && state.getRole() != train::Role::constant &&
               !(state.getRole() == train::Role::slot && getElementTypeOrSelf(state.getType()) == settings.slots)) {
      return state.emitOpError() << "expected f32 for state of role " << train::stringifyRole(state.getRole())
                                 << ", got " << getElementTypeOrSelf(state.getType());
    }
    return success();
  }

  LogicalResult verifyFunction(func::FuncOp function) {
    bool fine = true;
    int64_t lossy = 0;
    ScaleFlow flow(function);
    bool trains = !function.getOps<train::GradientOp>().empty();
    for (Operation &op : function.getBody().front()) {
      lossy += isLossyCast(&op);
      fine &= succeeded(verifySlots(&op)) && succeeded(verifyAccumulator(&op, accumulator, /*stated=*/true)) &&
              succeeded(verifyScale(&op, flow));
      if (auto write = dyn_cast<train::WriteOp>(op); write && trains)
        fine &= succeeded(verifyWrite(write));
    }
    bool multiplies = scaling.multiplies() || scaling.mode == Scaling::adaptive;
    bool scaled = llvm::any_of(function.getOps<train::ScaleLossOp>(),
                               [](Operation *op) { return !hasAttr<MPTDialect::SeedAttrHelper>(op); });
    if (trains && multiplies && !scaled) {
      function.emitOpError() << "expected the loss to be scaled, as the policy says: run precision-loss-scaling";
      fine = false;
    }
    auto recorded = getAttr<MPTDialect::LossyCastsAttrHelper>(function);
    if (recorded && recorded.getInt() != lossy) {
      function.emitOpError() << "expected " << recorded.getInt() << " rounding casts, got " << lossy
                             << ": a pass dropped or added a rounding";
      fine = false;
    }
    return success(fine);
  }

  LogicalResult verifySlots(Operation *op) {
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    if (!semantics)
      return success();
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (semantics.isWideOperand(i) && isNarrowFloat(op->getOperand(i).getType()))
        return op->emitOpError() << "expected f32 or wider for operand " << i << ", got "
                                 << getElementTypeOrSelf(op->getOperand(i).getType());
    for (unsigned i = 0; i < op->getNumResults(); ++i)
      if (semantics.isWideResult(i) && isNarrowFloat(op->getResult(i).getType()))
        return op->emitOpError() << "expected f32 or wider for result " << i << ", got "
                                 << getElementTypeOrSelf(op->getResult(i).getType());
    return success();
  }

  LogicalResult verifyScale(Operation *op, const ScaleFlow &flow) {
    if (flow.meets(op))
      return op->emitOpError()
             << "expected gradients that carry one scale, got different ones: train.rescale is missing";
    if (flow.multiplies(op))
      return op->emitOpError() << "expected one gradient among the factors, got two that carry a scale";
    auto scaled = dyn_cast<GradientScale>(op);
    return scaled ? scaled.verifyOperandScales([&](Value value) { return flow.of(value); }) : success();
  }

  LogicalResult verifyWrite(train::WriteOp write) {
    train::StateOp state = states.lookup(write.getStateAttr().getAttr());
    bool always = state.getRole() == train::Role::rng || state.getRole() == train::Role::scale ||
                  state.getRole() == train::Role::accumulator;
    if (scaling.mode != Scaling::none && !always && !write.getCondition())
      return write.emitOpError() << "expected a condition: a step whose gradients are not finite must leave "
                                 << write.getState() << " as it is";
    return success();
  }

  PrecisionSettings settings;
  LossScaling scaling;
  Type accumulator;
  DenseMap<StringAttr, train::StateOp> states;
  DenseSet<StringAttr> written, mastered; // mastered: names of parameters
};
} // namespace
