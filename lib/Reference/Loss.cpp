// Loss family. A row's log-sum-exp is computed in FP64 and rounded once; sums over rows accumulate in FP32 or wider.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Label and weight of each row; weight 0 for ignored rows, which also get label 0.
struct Targets {
  std::vector<int64_t> labels;
  std::vector<double> weights;
};

template <typename Op> FailureOr<Targets> readTargets(Op op, InterpreterFrame &frame, int64_t classes) {
  Targets targets;
  const Tensor &labels = frame.get(op.getLabels());
  for (int64_t label : labels.ints()) {
    bool ignored = op.getIgnoreIndex() && label == static_cast<int64_t>(*op.getIgnoreIndex());
    if (!ignored && (label < 0 || label >= classes))
      return op.emitOpError() << "expected labels from 0 to " << classes - 1 << ", got " << label;
    targets.labels.push_back(ignored ? 0 : label);
    targets.weights.push_back(ignored ? 0.0 : op.getWeights() ? frame.get(op.getWeights()).reals()[label] : 1.0);
  }
  return targets;
}

LogicalResult interpretLoss(SoftmaxCrossEntropyOp op, InterpreterFrame &frame) {
  const Tensor &logits = frame.get(op.getLogits());
  int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  FailureOr<Targets> targets = readTargets(op, frame, classes);
  if (failed(targets))
    return failure();
  Tensor lse = frame.zeros(op.getLogSumExp()), total = frame.zeros(op.getTotal()), loss = frame.zeros(op.getLoss());
  ArrayRef<double> x = logits.reals();
  MutableArrayRef<double> sums = lse.writeReals(), losses = loss.writeReals();
  double totalWeight = 0.0, totalLoss = 0.0;
  withRounding(frame.accumulatorType(logits.getElementType()), [&](auto round) {
    for (int64_t i = 0; i < rows; ++i) {
      ArrayRef<double> row = x.slice(i * classes, classes);
      double top = *std::max_element(row.begin(), row.end()), sum = 0.0;
      for (double value : row)
        sum += std::exp(value - top);
      sums[i] = round(top + std::log(sum));
      double weight = targets->weights[i];
      double value = weight == 0.0 ? 0.0 : round((sums[i] - row[targets->labels[i]]) * weight);
      if (op.getReduction() == LossReduction::none)
        losses[i] = value;
      totalLoss = round(totalLoss + value);
      totalWeight = round(totalWeight + weight);
    }
  });
  if (op.getReduction() != LossReduction::none)
    losses[0] = op.getReduction() == LossReduction::mean ? totalLoss / totalWeight : totalLoss;
  total.writeReals()[0] = totalWeight;
  frame.set(op.getLoss(), std::move(loss));
  frame.set(op.getLogSumExp(), std::move(lse));
  frame.set(op.getTotal(), std::move(total));
  return success();
}

LogicalResult interpretLossBackward(SoftmaxCrossEntropyBackwardOp op, InterpreterFrame &frame) {
  const Tensor &logits = frame.get(op.getLogits());
  int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  FailureOr<Targets> targets = readTargets(op, frame, classes);
  if (failed(targets))
    return failure();
  ArrayRef<double> x = logits.reals(), lse = frame.get(op.getLogSumExp()).reals(),
                   dloss = frame.get(op.getDloss()).reals();
  double total = op.getReduction() == LossReduction::mean ? scalarOf(frame, op.getTotal()) : 1.0;
  Tensor dlogits = frame.zeros(op.getDlogits());
  MutableArrayRef<double> out = dlogits.writeReals();
  for (int64_t i = 0; i < rows; ++i) {
    double upstream = dloss[op.getReduction() == LossReduction::none ? i : 0] * targets->weights[i] / total;
    for (int64_t j = 0; j < classes; ++j) {
      double slope = std::exp(x[i * classes + j] - lse[i]) - (targets->labels[i] == j ? 1.0 : 0.0);
      out[i * classes + j] = targets->weights[i] == 0.0 ? 0.0 : slope * upstream;
    }
  }
  frame.set(op.getDlogits(), std::move(dlogits));
  return success();
}

} // namespace

void mpt::attachLossRules(MLIRContext *context) {
  attachRule<SoftmaxCrossEntropyOp, interpretLoss>(context);
  attachRule<SoftmaxCrossEntropyBackwardOp, interpretLossBackward>(context);
}
