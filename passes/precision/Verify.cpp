// SPDX-License-Identifier: Apache-2.0
// precision-verify: the rules that no later pass may rely on being kept by chance.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/Numerics.h"
#include "mpt/Precision/StepRules.h"

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
      if (settings.masters.compensated && written.contains(state.getSymNameAttr()) && isNarrowFloat(state.getType()) &&
          !isRemainder(states.lookup(StringAttr::get(&getContext(), remainderOf(state.getSymName())))))
        return state.emitOpError() << "expected a state " << remainderOf(state.getSymName())
                                   << ", which a compensated parameter needs, got none";
    } else if (isNarrowFloat(state.getType()) && state.getRole() != train::Role::constant &&
               !(state.getRole() == train::Role::slot && getElementTypeOrSelf(state.getType()) == settings.slots) &&
               !isRemainder(state)) {
      return state.emitOpError() << "expected f32 for state of role " << train::stringifyRole(state.getRole())
                                 << ", got " << getElementTypeOrSelf(state.getType());
    }
    return success();
  }

  /// Of a parameter of its own type.
  bool isRemainder(train::StateOp state) {
    if (!state || state.getRole() != train::Role::slot || !state.getOfAttr() || !settings.masters.compensated)
      return false;
    train::StateOp parameter = states.lookup(state.getOfAttr());
    return parameter && state.getType() == parameter.getType() &&
           state.getSymName() == remainderOf(parameter.getSymName());
  }

  LogicalResult verifyFunction(func::FuncOp function) {
    bool fine = true;
    for (Operation &op : function.getBody().front())
      fine &= succeeded(verifySlots(&op)) && succeeded(verifyDecided(&op)) &&
              succeeded(verifyAccumulator(&op, accumulator, /*stated=*/true));
    ScaleFlow flow(function, states);
    fine &= succeeded(flow.infer());
    if (!function.getOps<train::GradientOp>().empty()) {
      StepFunction step(function, states);
      fine &= succeeded(verifyScaledLosses(step, settings.scaling));
      fine &= succeeded(verifyScaleUpdates(step, settings.scaling));
      fine &= succeeded(verifyCommits(step, flow, settings.scaling));
      fine &= succeeded(verifyUpdates(step));
    }
    return success(fine && succeeded(verifyRoundings(function)));
  }

  LogicalResult verifyRoundings(func::FuncOp function) {
    int64_t lossy = llvm::count_if(function.getBody().front(), [](Operation &op) { return isLossyCast(&op); });
    auto recorded = getAttr<MPTDialect::LossyCastsAttrHelper>(function);
    bool narrow = llvm::any_of(function.getBody().front(),
                               [](Operation &op) { return llvm::any_of(op.getResultTypes(), isNarrowFloat); });
    if (!recorded && narrow && settings.narrows())
      return function.emitOpError() << "expected the number of its rounding casts ("
                                    << MPTDialect::LossyCastsAttrHelper::getNameStr()
                                    << "), got none: run precision-insert-casts";
    if (recorded && recorded.getInt() != lossy)
      return function.emitOpError() << "expected " << recorded.getInt() << " rounding casts, got " << lossy
                                    << ": a pass dropped or added a rounding";
    return success();
  }

  /// Operands have the types that were decided: no other rounding stands in for one that is missing.
  LogicalResult verifyDecided(Operation *op) {
    auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(op);
    // Writes obey their states, whose types are verified with them.
    if (!decision || decision.getQuantized() || op->getNumResults() == 0)
      return success();
    for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
      Type type = decision.operandType(i), have = getElementTypeOrSelf(operand.getType());
      if (type && isa<FloatType>(have) && isa<FloatType>(type) && have != type)
        return op->emitOpError() << "expected " << type << " for operand " << i << ", as was decided, got " << have
                                 << ": a cast is missing";
    }
    return success();
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

  PrecisionSettings settings;
  Type accumulator;
  States states;
  DenseSet<StringAttr> written, mastered; // mastered: names of parameters
};
} // namespace
