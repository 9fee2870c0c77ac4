// SPDX-License-Identifier: Apache-2.0
// --training-accumulate: gradients summed over micro-steps.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_ACCUMULATE
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Accumulate : mpt::impl::AccumulateBase<Accumulate> {
  using AccumulateBase::AccumulateBase;

  void runOnOperation() override {
    func::FuncOp step = findFunction(getOperation(), "step");
    if (!step)
      return signalPassFailure();
    if (microSteps < 1) {
      step.emitError() << "expected micro-steps of at least 1, got " << microSteps.getValue();
      return signalPassFailure();
    }
    if (microSteps == 1)
      return;
    func::FuncOp accumulate = cloneFunction(step, "accumulate");
    for (auto gradient : llvm::to_vector(step.getOps<train::GradientOp>())) {
      RankedTensorType type = wide(gradient);
      StringRef parameter = gradient.getParameter();
      if (!addState(getOperation(), train::Role::accumulator, nameOf(parameter), type, 0.0, parameter))
        return signalPassFailure();
      consume(gradient, type);
    }
    dropUpdates(accumulate);
    for (auto gradient : llvm::to_vector(accumulate.getOps<train::GradientOp>())) {
      OpBuilder builder = after(gradient);
      write(builder, gradient, sum(builder, gradient, wide(gradient)));
    }
    setResults(accumulate, namedResults(accumulate).front());
    eraseDeadOps(accumulate);
    eraseUnusedArgument(accumulate, "learning_rate");
  }

private:
  static std::string nameOf(StringRef parameter) { return (parameter + ".accumulator").str(); }
  static OpBuilder after(Operation *op) { return OpBuilder(op->getBlock(), std::next(op->getIterator())); }
  static RankedTensorType wide(train::GradientOp gradient) {
    RankedTensorType type = tensorType(gradient.getResult());
    return RankedTensorType::get(type.getShape(), wideType(type.getElementType()));
  }

  /// The accumulator plus this micro-step's gradient.
  static Value sum(OpBuilder &builder, train::GradientOp gradient, RankedTensorType type) {
    GraphBuilder b(builder, gradient.getLoc());
    Value old = train::ReadOp::create(builder, b.loc, type, nameOf(gradient.getParameter()));
    return b.add(old, b.widen(gradient.getResult()));
  }
  static void write(OpBuilder &builder, train::GradientOp gradient, Value value) {
    train::WriteOp::create(builder, gradient.getLoc(), nameOf(gradient.getParameter()), value, Value());
  }

  /// The optimizer sees the mean over the micro-steps; the accumulator is emptied.
  void consume(train::GradientOp gradient, RankedTensorType type) {
    SmallVector<OpOperand *> uses;
    for (OpOperand &use : gradient.getResult().getUses())
      uses.push_back(&use);
    OpBuilder builder = after(gradient);
    GraphBuilder b(builder, gradient.getLoc());
    Value mean = b.mul(sum(builder, gradient, type), 1.0 / static_cast<double>(microSteps));
    write(builder, gradient, b.splat(type, 0.0));
    for (OpOperand *use : uses)
      use->set(mean);
  }

  /// States that the optimizer writes stay as they are during a micro-step; statistics and generators move on.
  void dropUpdates(func::FuncOp function) {
    for (auto write : llvm::make_early_inc_range(function.getOps<train::WriteOp>())) {
      auto state = getOperation().lookupSymbol<train::StateOp>(write.getState());
      if (state && state.getRole() != train::Role::statistic && state.getRole() != train::Role::rng)
        write.erase();
    }
  }
};

} // namespace
