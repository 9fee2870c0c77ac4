// SPDX-License-Identifier: Apache-2.0
// --training-average: exponential moving averages of parameters.
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "passes/training/Passes.h"

#include "llvm/ADT/StringSet.h"

namespace mpt {
#define GEN_PASS_DEF_AVERAGE
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Average : mpt::impl::AverageBase<Average> {
  using AverageBase::AverageBase;

  void runOnOperation() override {
    if (!(decay >= 0.0 && decay < 1.0)) {
      getOperation().emitError() << "expected a decay of averages in [0, 1), got " << decay.getValue();
      return signalPassFailure();
    }
    if (decay == 0.0)
      return;
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>()))
      for (auto write : llvm::to_vector(function.getOps<train::WriteOp>()))
        if (failed(average(write)))
          return signalPassFailure();
    for (StringRef name : {"evaluate", "predict"})
      if (auto function = getOperation().lookupSymbol<func::FuncOp>(name))
        readAverages(cloneFunction(function, (name + "_ema").str()));
  }

private:
  static std::string nameOf(StringRef parameter) { return (parameter + ".ema").str(); }

  LogicalResult average(train::WriteOp write) {
    auto state = getOperation().lookupSymbol<train::StateOp>(write.getState());
    auto type = cast<RankedTensorType>(state.getType());
    if (state.getRole() != train::Role::parameter || !isa<FloatType>(type.getElementType()))
      return success();
    std::string name = nameOf(state.getSymName());
    if (averaged.insert(state.getSymName()).second) {
      auto slot = addState(getOperation(), train::Role::slot, name, type, 0.0, state.getSymName());
      if (!slot)
        return failure();
      slot.setValueAttr(state.getValueAttr());
      ++averages;
    }
    OpBuilder builder(write->getBlock(), std::next(write->getIterator()));
    GraphBuilder b(builder, write.getLoc());
    Value old = train::ReadOp::create(builder, b.loc, type, name);
    Value next = b.add(b.mul(old, decay), b.mul(write.getValue(), 1 - decay));
    train::WriteOp::create(builder, b.loc, name, next, Value());
    return success();
  }

  void readAverages(func::FuncOp function) {
    for (auto read : function.getOps<train::ReadOp>())
      if (averaged.contains(read.getState()))
        read.setState(nameOf(read.getState()));
  }

  llvm::StringSet<> averaged; ///< parameters
};

} // namespace
