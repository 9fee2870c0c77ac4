// --training-loss: appends a loss to @forward.
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "passes/training/Passes.h"

#include "llvm/ADT/StringSwitch.h"

namespace mpt {
#define GEN_PASS_DEF_LOSS
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Loss : mpt::impl::LossBase<Loss> {
  using LossBase::LossBase;

  void runOnOperation() override {
    func::FuncOp forward = findFunction(getOperation(), "forward");
    if (!forward)
      return signalPassFailure();
    SmallVector<NamedValue> results = namedResults(forward);
    if (results.empty() || !isFloat(results.front().second)) {
      InFlightDiagnostic error = forward.emitError()
                                 << "expected a float tensor as the first result, to take the loss of, got ";
      results.empty() ? error << "no result" : error << results.front().second.getType();
      return signalPassFailure();
    }
    OpBuilder builder(forward.getBody().front().getTerminator());
    Location loc = NameLoc::get(builder.getStringAttr("loss"), results.front().second.getLoc());
    GraphBuilder b(builder, loc);
    FailureOr<Value> value = build(forward, b, results.front().second);
    if (failed(value))
      return signalPassFailure();
    if (loss == "none")
      results.erase(results.begin());
    results.insert(results.begin(), {"loss", *value});
    setResults(forward, results);
  }

private:
  static bool isFloat(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && isa<FloatType>(type.getElementType());
  }

  FailureOr<Value> build(func::FuncOp forward, GraphBuilder &b, Value prediction) {
    if (loss == "softmax-cross-entropy")
      return crossEntropy(forward, b, prediction);
    if (loss == "none")
      return ownLoss(forward, b, prediction);
    if (loss != "mse" && loss != "l1" && loss != "bce-with-logits")
      return forward.emitError() << "expected loss softmax-cross-entropy, mse, l1, bce-with-logits or none, got '"
                                 << loss << "'";
    FailureOr<Value> target = addTarget(forward, "target", prediction.getType());
    if (failed(target))
      return failure();
    Value x = b.widen(prediction), t = b.widen(*target), each;
    if (loss == "bce-with-logits") {
      each = b.sub(b.make<SoftplusOp>(x), b.mul(x, t));
    } else {
      Value difference = b.sub(x, t);
      each = loss == "mse" ? b.mul(difference, difference) : b.make<AbsOp>(difference);
    }
    Value mean = b.mean(each, axisRange(0, tensorType(each).getRank()));
    // Precision passes keep what is written out here in FP32, and its gradient, which has the same location.
    for (Operation &op : forward.getBody().front())
      if (op.getLoc() == b.loc)
        op.setAttr("mpt.loss", b.builder.getUnitAttr());
    return mean;
  }

  FailureOr<Value> ownLoss(func::FuncOp forward, GraphBuilder &b, Value value) {
    if (tensorType(value).getNumElements() != 1)
      return forward.emitError() << "expected the first result to be a scalar loss, got " << value.getType()
                                 << ": name a loss with --loss";
    return b.widen(b.reshape(value, {}));
  }

  /// Classes go last, everything else becomes rows.
  FailureOr<Value> crossEntropy(func::FuncOp forward, GraphBuilder &b, Value logits) {
    RankedTensorType type = tensorType(logits);
    int64_t rank = type.getRank(), axis = classAxis < 0 ? classAxis + rank : classAxis;
    if (rank < 2 || axis < 0 || axis >= rank)
      return forward.emitError() << "expected logits with classes on axis " << classAxis.getValue() << ", got " << type
                                 << ": set class-axis, or another loss";
    std::optional<int64_t> ignored;
    if (int64_t label; !ignoreIndex.empty()) {
      if (StringRef(ignoreIndex).getAsInteger(10, label))
        return forward.emitError() << "expected an integer ignore-index, got '" << ignoreIndex << "'";
      ignored = label;
    }
    SmallVector<int64_t> order = otherAxes(rank, {axis}), samples;
    for (int64_t i : order)
      samples.push_back(type.getDimSize(i));
    auto labelType = RankedTensorType::get(samples, b.builder.getI64Type());
    FailureOr<Value> labels = addTarget(forward, "labels", labelType);
    if (failed(labels))
      return failure();
    order.push_back(axis);
    int64_t classes = type.getDimSize(axis), rows = labelType.getNumElements();
    Value flat = b.reshape(b.transpose(logits, order), {rows, classes});
    IntegerAttr ignoreAttr = ignored ? b.builder.getI64IntegerAttr(*ignored) : IntegerAttr();
    auto reduction = LossReductionAttr::get(b.builder.getContext(), LossReduction::mean);
    return b.make<SoftmaxCrossEntropyOp>(flat, b.reshape(*labels, {rows}), Value(), reduction, ignoreAttr);
  }

  static FailureOr<Value> addTarget(func::FuncOp forward, StringRef name, Type type) {
    for (unsigned i = 0; i < forward.getNumArguments(); ++i)
      if (nameOfArgument(forward, i) == name)
        return forward.emitError() << "expected no input named '" << name
                                   << "', which the loss adds: the model seems to hold its loss, use --loss=none";
    return addArgument(forward, name, type);
  }
};

} // namespace
