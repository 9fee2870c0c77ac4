// --fusion-lower-train: training arithmetic in core ops, conditional writes as selects.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

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

/// The old value stays where the condition does not hold.
void makeUnconditional(train::WriteOp write) {
  Value condition = write.getCondition();
  if (!condition)
    return;
  Value old = oldValue(write), next = write.getValue();
  OpBuilder builder(write);
  GraphBuilder b(builder, write.getLoc());
  Value kept = b.select(b.broadcast(condition, tensorType(next).getShape(), {}), next, old);
  train::WriteOp::create(builder, write.getLoc(), write.getStateAttr(), kept, Value());
  write.erase();
}

struct LowerTrain : mpt::impl::LowerTrainBase<LowerTrain> {
  void runOnOperation() override {
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
        makeUnconditional(write);
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
