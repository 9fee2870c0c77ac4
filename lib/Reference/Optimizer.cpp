// Optimizer family: updates in FP64, each result rounded once.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

LogicalResult interpretSGD(SGDOp op, InterpreterFrame &frame) {
  double lr = scalarOf(frame, op.getLr()), step = scalarOf(frame, op.getStep());
  double momentum = op.getMomentum().convertToDouble(), dampening = op.getDampening().convertToDouble();
  double decay = op.getWeightDecay().convertToDouble();
  ArrayRef<double> grad = frame.get(op.getGrad()).reals();
  Tensor param = frame.get(op.getParam()), slot;
  if (op.getSlot())
    slot = frame.get(op.getSlot());
  MutableArrayRef<double> p = param.writeReals(), m = slot ? slot.writeReals() : MutableArrayRef<double>();
  for (size_t i = 0; i < p.size(); ++i) {
    double g = grad[i] + decay * p[i];
    if (slot) {
      m[i] = step == 1 ? g : momentum * m[i] + (1 - dampening) * g;
      g = op.getNesterov() ? g + momentum * m[i] : m[i];
    }
    p[i] -= lr * g;
  }
  frame.set(op.getNewParam(), std::move(param));
  if (slot)
    frame.set(op.getNewSlots().front(), std::move(slot));
  return success();
}

LogicalResult interpretAdam(AdamOp op, InterpreterFrame &frame) {
  double lr = scalarOf(frame, op.getLr()), step = scalarOf(frame, op.getStep());
  double beta1 = op.getBeta1().convertToDouble(), beta2 = op.getBeta2().convertToDouble();
  double epsilon = op.getEpsilon().convertToDouble(), decay = op.getWeightDecay().convertToDouble();
  double rate = lr / (1 - std::pow(beta1, step)), rootCorrection = std::sqrt(1 - std::pow(beta2, step));
  ArrayRef<double> grad = frame.get(op.getGrad()).reals();
  Tensor param = frame.get(op.getParam()), first = frame.get(op.getMoment1()), second = frame.get(op.getMoment2());
  MutableArrayRef<double> p = param.writeReals(), m = first.writeReals(), v = second.writeReals();
  for (size_t i = 0; i < p.size(); ++i) {
    double g = grad[i];
    if (op.getDecoupled())
      p[i] -= lr * decay * p[i];
    else
      g += decay * p[i];
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    p[i] -= rate * m[i] / (std::sqrt(v[i]) / rootCorrection + epsilon);
  }
  frame.set(op.getNewParam(), std::move(param));
  frame.set(op.getNewMoment1(), std::move(first));
  frame.set(op.getNewMoment2(), std::move(second));
  return success();
}

LogicalResult interpretAdagrad(AdagradOp op, InterpreterFrame &frame) {
  double lr = scalarOf(frame, op.getLr()), step = scalarOf(frame, op.getStep());
  double epsilon = op.getEpsilon().convertToDouble(), decay = op.getWeightDecay().convertToDouble();
  double rate = lr / (1 + (step - 1) * op.getLrDecay().convertToDouble());
  ArrayRef<double> grad = frame.get(op.getGrad()).reals();
  Tensor param = frame.get(op.getParam()), accumulator = frame.get(op.getAccumulator());
  MutableArrayRef<double> p = param.writeReals(), h = accumulator.writeReals();
  for (size_t i = 0; i < p.size(); ++i) {
    double g = grad[i] + decay * p[i];
    h[i] += g * g;
    p[i] -= rate * g / (std::sqrt(h[i]) + epsilon);
  }
  frame.set(op.getNewParam(), std::move(param));
  frame.set(op.getNewAccumulator(), std::move(accumulator));
  return success();
}

} // namespace

void mpt::attachOptimizerRules(MLIRContext *context) {
  attachRule<SGDOp, interpretSGD>(context);
  attachRule<AdamOp, interpretAdam>(context);
  attachRule<AdagradOp, interpretAdagrad>(context);
}
