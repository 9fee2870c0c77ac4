// SPDX-License-Identifier: Apache-2.0
// --fusion-lower-train: training arithmetic in core ops, conditional writes as selects.
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/GradientScale.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

#include <algorithm>

namespace mpt {
#define GEN_PASS_DEF_LOWERTRAIN
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// The value of `state` from before the call, read once a function.
Value oldValue(train::WriteOp write) {
  for (auto read : write->getBlock()->getOps<train::ReadOp>())
    if (read.getState() == write.getState() && read->isBeforeInBlock(write))
      return read.getValue();
  OpBuilder builder(write);
  return train::ReadOp::create(builder, write.getLoc(), write.getValue().getType(), write.getStateAttr());
}

/// Turns conditional writes into unconditional ones of a value that is selected: the old one stays where the condition
/// does not hold. Masters are lowered before their narrow copies.
class Selects {
public:
  explicit Selects(ModuleOp module) : symbols(module) {}
  bool isOfMaster(train::WriteOp write) const {
    auto state = symbols.lookup<train::StateOp>(write.getState());
    return state && state.getRole() == train::Role::master;
  }
  void lower(train::WriteOp write);

private:
  Value keptCopy(train::WriteOp write);

  struct Master {
    Value next, condition; ///< as they were
    train::WriteOp write;
  };
  SymbolTable symbols;
  DenseMap<std::pair<Block *, StringRef>, Master> masters; ///< by function and parameter
};

} // namespace

/// A narrow copy of the master's new value equals the choice of the copy's own select, with no need to read the old
/// copy.
Value Selects::keptCopy(train::WriteOp write) {
  auto cast = write.getValue().getDefiningOp<CastOp>();
  auto master = masters.find({write->getBlock(), write.getState()});
  if (!cast || cast.getRounding() == Rounding::Stochastic || master == masters.end() ||
      master->second.next != cast.getX() || master->second.condition != write.getCondition())
    return {};
  if (write->isBeforeInBlock(master->second.write))
    write->moveAfter(master->second.write); // writes take effect when the function ends
  OpBuilder builder(write);
  IRMapping mapping;
  mapping.map(cast.getX(), master->second.write.getValue());
  return builder.clone(*cast, mapping)->getResult(0);
}

void Selects::lower(train::WriteOp write) {
  Value condition = write.getCondition(), next = write.getValue();
  if (!condition)
    return;
  Value kept = keptCopy(write);
  if (!kept) {
    Value old = oldValue(write);
    OpBuilder builder(write);
    GraphBuilder b(builder, write.getLoc());
    kept = b.select(b.broadcast(condition, tensorType(next).getShape(), {}), next, old);
  }
  write.getValueMutable().assign(kept);
  write.getConditionMutable().clear();
  if (isOfMaster(write))
    masters[{write->getBlock(), *symbols.lookup<train::StateOp>(write.getState()).getOf()}] = {next, condition, write};
}

namespace {

/// Takes out the markers of gradients.
void eraseGradientMarkers(ModuleOp module) {
  module.walk([](train::GradientOp gradient) {
    gradient.getResult().replaceAllUsesWith(gradient.getGradient());
    gradient->erase();
  });
}

/// Later phases cannot tell the arithmetic of scales from other arithmetic.
void markScales(Decomposable composite, ArrayRef<Value> values) {
  auto rule = dyn_cast<GradientScale>(composite.getOperation());
  if (!rule)
    return;
  for (OpResult scale : rule.getMadeScales())
    if (Operation *made = values[scale.getResultNumber()].getDefiningOp())
      setAttr<train::TrainDialect::ScaleAttrHelper>(made);
}

/// Writes the training arithmetic in core ops.
LogicalResult decomposeTraining(ModuleOp module) {
  SmallVector<Decomposable> composites;
  module.walk([&](Decomposable composite) {
    if (isa<train::TrainDialect>(composite->getDialect()))
      composites.push_back(composite);
  });
  for (Decomposable composite : composites) {
    OpBuilder builder(composite);
    FailureOr<SmallVector<Value>> values = decomposeAccumulating(composite, builder);
    if (failed(values))
      return composite->emitOpError() << "expected a decomposition into core ops";
    markScales(composite, *values);
    composite->replaceAllUsesWith(*values);
    composite->erase();
  }
  return success();
}

/// Makes writes unconditional, masters' writes first.
void lowerWrites(ModuleOp module) {
  Selects selects(module);
  SmallVector<train::WriteOp> writes;
  module.walk([&](train::WriteOp write) { writes.push_back(write); });
  std::stable_partition(writes.begin(), writes.end(), [&](train::WriteOp write) { return selects.isOfMaster(write); });
  for (train::WriteOp write : writes)
    selects.lower(write);
}

struct LowerTrain : mpt::impl::LowerTrainBase<LowerTrain> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        stateParts(function);
    eraseGradientMarkers(getOperation());
    if (failed(decomposeTraining(getOperation())))
      return signalPassFailure();
    lowerWrites(getOperation());
  }
};

} // namespace
