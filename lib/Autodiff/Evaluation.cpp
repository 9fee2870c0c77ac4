// SPDX-License-Identifier: Apache-2.0
// Evaluation forms: dropout and batch normalization outside training.
#include "Rules.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

namespace {

struct DropoutEvaluation : EvaluationForm::ExternalModel<DropoutEvaluation, DropoutOp> {
  FailureOr<SmallVector<Value>> evaluationForm(Operation *op, OpBuilder &) const {
    return SmallVector<Value>{cast<DropoutOp>(op).getX()};
  }
};

/// (x - running mean) / sqrt(running variance + epsilon) scale + bias, as one multiplication and addition a channel. A
/// normalization that keeps no running statistics (of weights, say) takes its operand's statistics in evaluation too.
struct BatchNormEvaluation : EvaluationForm::ExternalModel<BatchNormEvaluation, BatchNormOp> {
  FailureOr<SmallVector<Value>> evaluationForm(Operation *operation, OpBuilder &builder) const {
    auto op = cast<BatchNormOp>(operation);
    Attribute named = getAttr<MPTDialect::StatisticsAttrHelper>(op);
    if (!named)
      return SmallVector<Value>(op->getResults());
    auto states = dyn_cast<ArrayAttr>(named);
    if (!states || states.size() != 2 || !llvm::all_of(states, llvm::IsaPred<FlatSymbolRefAttr>))
      return op.emitOpError() << "expected the attribute mpt.statistics to name the running mean and variance";
    GraphBuilder b(builder, op.getLoc());
    auto read = [&](unsigned i, Value like) -> Value {
      auto name = cast<FlatSymbolRefAttr>(states[i]);
      auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(op, name);
      Type type = state ? state.getType() : like.getType();
      return train::ReadOp::create(builder, op.getLoc(), type, name);
    };
    Value mean = read(0, op.getMean()), variance = read(1, op.getVariance());
    Value x = b.widen(op.getX());
    Type element = tensorType(x).getElementType();
    ArrayRef<int64_t> shape = tensorType(x).getShape();
    Value invStd = b.make<RsqrtOp>(b.add(b.cast(variance, element), op.getEpsilon().convertToDouble()));
    Value scale = b.mul(b.cast(op.getScale(), element), invStd);
    Value shift = b.sub(b.cast(op.getBias(), element), b.mul(b.cast(mean, element), scale));
    Value y = b.add(b.mul(x, b.broadcast(scale, shape, {1})), b.broadcast(shift, shape, {1}));
    return SmallVector<Value>{b.cast(y, tensorType(op.getY()).getElementType()),
                              b.cast(mean, tensorType(op.getMean()).getElementType()),
                              b.cast(variance, tensorType(op.getVariance()).getElementType())};
  }
};

} // namespace

void mpt::attachEvaluationForms(MLIRContext *context) {
  DropoutOp::attachInterface<DropoutEvaluation>(*context);
  BatchNormOp::attachInterface<BatchNormEvaluation>(*context);
}
