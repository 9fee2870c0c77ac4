// --fusion-lower-train: training arithmetic in core ops, conditional writes as selects.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"

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

/// Turns conditional writes into unconditional ones of a value that is selected.
class Selects {
public:
  explicit Selects(ModuleOp module) : symbols(module) {}
  /// The old value stays where the condition does not hold.
  void lower(train::WriteOp write);

private:
  /// What a master keeps, for writes of its narrow copy: the copy of that is what the copy's select would choose, with
  /// no need to read the old copy.
  Value keptCopy(train::WriteOp write);

  SymbolTable symbols;
};

} // namespace

Value Selects::keptCopy(train::WriteOp write) {
  auto cast = write.getValue().getDefiningOp<CastOp>();
  if (!cast || cast.getRounding() == Rounding::Stochastic)
    return {};
  for (auto other : write->getBlock()->getOps<train::WriteOp>()) {
    auto state = symbols.lookup<train::StateOp>(other.getState());
    if (!state || state.getRole() != train::Role::master || state.getOf() != write.getState())
      continue;
    // One that is lowered already writes the select itself.
    Value kept = other.getValue();
    if (other.getCondition()) {
      if (other.getCondition() != write.getCondition() || kept != cast.getX())
        return {};
      lower(other);
      return keptCopy(write);
    }
    auto select = kept.getDefiningOp<SelectOp>();
    auto condition = select ? select.getCondition().getDefiningOp<BroadcastOp>() : BroadcastOp();
    if (!condition || condition.getX() != write.getCondition() || select.getOnTrue() != cast.getX())
      return {};
    if (write->isBeforeInBlock(other))
      write->moveAfter(other); // writes take effect when the function ends
    OpBuilder builder(write);
    IRMapping mapping;
    mapping.map(cast.getX(), kept);
    return builder.clone(*cast, mapping)->getResult(0);
  }
  return {};
}

void Selects::lower(train::WriteOp write) {
  Value condition = write.getCondition();
  if (!condition)
    return;
  Value kept = keptCopy(write);
  OpBuilder builder(write);
  if (!kept) {
    Value old = oldValue(write), next = write.getValue();
    GraphBuilder b(builder, write.getLoc());
    kept = b.select(b.broadcast(condition, tensorType(next).getShape(), {}), next, old);
  }
  write.getValueMutable().assign(kept);
  write.getConditionMutable().clear();
}

namespace {

struct LowerTrain : mpt::impl::LowerTrainBase<LowerTrain> {
  void runOnOperation() override {
    Selects selects(getOperation());
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (op->getDialect() == getContext().getLoadedDialect<train::TrainDialect>())
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (auto gradient = dyn_cast<train::GradientOp>(op)) {
        gradient.getResult().replaceAllUsesWith(gradient.getGradient());
        op->erase();
      } else if (auto write = dyn_cast<train::WriteOp>(op)) {
        selects.lower(write);
      } else if (auto composite = dyn_cast<Decomposable>(op)) {
        OpBuilder builder(op);
        FailureOr<SmallVector<Value>> values = composite.decompose(builder);
        if (failed(values)) {
          op->emitOpError() << "expected a decomposition into core ops";
          return signalPassFailure();
        }
        op->replaceAllUsesWith(*values);
        op->erase();
      }
    }
  }
};

} // namespace
