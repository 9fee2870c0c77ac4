// Export of reductions, losses and optimizers.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Arithmetic on values of one type, in infix form.
class Arithmetic {
public:
  Arithmetic(OnnxWriter &w, Type type) : w(w), type(type) {}
  OnnxValue number(double value) { return w.scalar(type, value); }
  OnnxValue add(OnnxValue a, OnnxValue b) { return w.node("Add", {a, b}); }
  OnnxValue sub(OnnxValue a, OnnxValue b) { return w.node("Sub", {a, b}); }
  OnnxValue mul(OnnxValue a, OnnxValue b) { return w.node("Mul", {a, b}); }
  OnnxValue div(OnnxValue a, OnnxValue b) { return w.node("Div", {a, b}); }
  OnnxValue scale(OnnxValue a, double b) { return mul(a, number(b)); }
  OnnxValue in(Value value) { return w.cast(w.get(value), elementOf(value), type); }
  OnnxValue out(OnnxValue value, Value like) { return w.cast(value, type, elementOf(like)); }

  OnnxWriter &w;
  Type type;
};

StringRef reduceName(ReduceKind kind) {
  switch (kind) {
  case ReduceKind::sum:
    return "ReduceSum";
  case ReduceKind::mean:
    return "ReduceMean";
  case ReduceKind::max:
    return "ReduceMax";
  case ReduceKind::min:
    return "ReduceMin";
  case ReduceKind::prod:
    return "ReduceProd";
  }
  llvm_unreachable("unknown reduction");
}

/// Narrow floats are widened around the reduction, so that the sum is wide whatever the executor does.
OnnxValue exportReduce(ReduceOp op, OnnxWriter &w) {
  Type from = elementOf(op.getX()), type = isa<FloatType>(from) ? Type(wideType(from)) : from;
  if (op.getKind() == ReduceKind::max || op.getKind() == ReduceKind::min)
    type = from;
  OnnxValue y = w.node(reduceName(op.getKind()), {w.cast(w.get(op.getX()), from, type), w.indices(op.getAxes())},
                       {{"keepdims", int64_t(0)}});
  return w.cast(y, type, elementOf(op.getY()));
}

/// Label indices [M, 1] with ignored rows pointing at class 0, and the rows' weights [M].
struct Labels {
  Labels(OnnxWriter &w, Value labels, Value classWeights, std::optional<int64_t> ignored, Type type) {
    Type index = IntegerType::get(labels.getContext(), 64);
    OnnxValue ids = w.cast(w.get(labels), elementOf(labels), index);
    OnnxValue one = w.scalar(type, 1.0), zero = w.scalar(type, 0.0), none;
    if (ignored) {
      none = w.node("Equal", {ids, w.scalar(index, *ignored)});
      ids = w.node("Where", {none, w.scalar(index, 0), ids});
    }
    weights = classWeights ? w.node("Gather", {w.cast(w.get(classWeights), elementOf(classWeights), type), ids})
                           : w.node("Expand", {one, w.node("Shape", {ids})});
    if (ignored)
      weights = w.node("Where", {none, zero, weights});
    column = w.node("Unsqueeze", {ids, w.indices({1})});
  }
  OnnxValue column, weights;
};

Values exportCrossEntropy(SoftmaxCrossEntropyOp op, OnnxWriter &w) {
  Arithmetic a(w, wideType(elementOf(op.getLogits())));
  OnnxValue x = a.in(op.getLogits()), axes = w.indices({1});
  OnnxValue top = w.node("ReduceMax", {x, axes});
  OnnxValue sum = w.node("ReduceSum", {w.node("Exp", {a.sub(x, top)}), axes}, {{"keepdims", int64_t(0)}});
  OnnxValue lse = a.add(w.node("Squeeze", {top, axes}), w.node("Log", {sum}));
  Labels labels(w, op.getLabels(), op.getWeights(), op.getIgnoreIndex(), a.type);
  OnnxValue picked = w.node("Squeeze", {w.node("GatherElements", {x, labels.column}, {{"axis", int64_t(1)}}), axes});
  OnnxValue rows = a.mul(a.sub(lse, picked), labels.weights), all = w.indices({0});
  OnnxValue total = w.node("ReduceSum", {labels.weights, all}, {{"keepdims", int64_t(0)}}), loss = rows;
  if (op.getReduction() != LossReduction::none)
    loss = w.node("ReduceSum", {rows, all}, {{"keepdims", int64_t(0)}});
  if (op.getReduction() == LossReduction::mean)
    loss = a.div(loss, total);
  return {a.out(loss, op.getLoss()), a.out(lse, op.getLogSumExp()), a.out(total, op.getTotal())};
}

OnnxValue exportCrossEntropyBackward(SoftmaxCrossEntropyBackwardOp op, OnnxWriter &w) {
  Arithmetic a(w, wideType(elementOf(op.getLogits())));
  OnnxValue x = a.in(op.getLogits()), axes = w.indices({1});
  OnnxValue softmax = w.node("Exp", {a.sub(x, w.node("Unsqueeze", {a.in(op.getLogSumExp()), axes}))});
  Labels labels(w, op.getLabels(), op.getWeights(), op.getIgnoreIndex(), a.type);
  OnnxValue zeros = w.node("Expand", {a.number(0.0), w.node("Shape", {x})});
  OnnxValue ones = w.node("Expand", {a.number(1.0), w.node("Shape", {labels.column})});
  OnnxValue onehot = w.node("ScatterElements", {zeros, labels.column, ones}, {{"axis", int64_t(1)}});
  OnnxValue row = a.mul(labels.weights, a.in(op.getDloss()));
  if (op.getReduction() == LossReduction::mean)
    row = a.div(row, a.in(op.getTotal()));
  return a.out(a.mul(a.sub(softmax, onehot), w.node("Unsqueeze", {row, axes})), op.getDlogits());
}

/// 1 - base^step.
OnnxValue biasCorrection(Arithmetic &a, double base, Value step) {
  return a.sub(a.number(1.0), a.w.node("Pow", {a.number(base), a.in(step)}));
}

Values exportSGD(SGDOp op, OnnxWriter &w) {
  Arithmetic a(w, wideType(elementOf(op.getParam())));
  OnnxValue p = a.in(op.getParam()), g = a.in(op.getGrad());
  if (double decay = op.getWeightDecay().convertToDouble())
    g = a.add(g, a.scale(p, decay));
  Values results{""};
  if (op.getSlot()) {
    double momentum = op.getMomentum().convertToDouble();
    Type index = elementOf(op.getStep());
    OnnxValue first = w.node("Equal", {w.get(op.getStep()), w.scalar(index, 1)});
    OnnxValue later =
        a.add(a.scale(a.in(op.getSlot()), momentum), a.scale(g, 1.0 - op.getDampening().convertToDouble()));
    OnnxValue m = w.node("Where", {first, g, later});
    results.push_back(a.out(m, op.getSlot()));
    g = op.getNesterov() ? a.add(g, a.scale(m, momentum)) : m;
  }
  results[0] = a.out(a.sub(p, a.mul(a.in(op.getLr()), g)), op.getParam());
  return results;
}

Values exportAdam(AdamOp op, OnnxWriter &w) {
  Arithmetic a(w, wideType(elementOf(op.getParam())));
  double beta1 = op.getBeta1().convertToDouble(), beta2 = op.getBeta2().convertToDouble();
  OnnxValue p = a.in(op.getParam()), g = a.in(op.getGrad()), lr = a.in(op.getLr());
  if (double decay = op.getWeightDecay().convertToDouble()) {
    if (op.getDecoupled())
      p = a.sub(p, a.mul(a.scale(lr, decay), p));
    else
      g = a.add(g, a.scale(p, decay));
  }
  OnnxValue m = a.add(a.scale(a.in(op.getMoment1()), beta1), a.scale(g, 1.0 - beta1));
  OnnxValue v = a.add(a.scale(a.in(op.getMoment2()), beta2), a.scale(a.mul(g, g), 1.0 - beta2));
  OnnxValue root = a.div(w.node("Sqrt", {v}), w.node("Sqrt", {biasCorrection(a, beta2, op.getStep())}));
  OnnxValue rate = a.div(lr, biasCorrection(a, beta1, op.getStep()));
  OnnxValue move = a.div(a.mul(rate, m), a.add(root, a.number(op.getEpsilon().convertToDouble())));
  return {a.out(a.sub(p, move), op.getParam()), a.out(m, op.getMoment1()), a.out(v, op.getMoment2())};
}

Values exportAdagrad(AdagradOp op, OnnxWriter &w) {
  Arithmetic a(w, wideType(elementOf(op.getParam())));
  OnnxValue p = a.in(op.getParam()), g = a.in(op.getGrad()), lr = a.in(op.getLr());
  if (double decay = op.getWeightDecay().convertToDouble())
    g = a.add(g, a.scale(p, decay));
  if (double decay = op.getLrDecay().convertToDouble())
    lr = a.div(lr, a.add(a.number(1.0), a.scale(a.sub(a.in(op.getStep()), a.number(1.0)), decay)));
  OnnxValue h = a.add(a.in(op.getAccumulator()), a.mul(g, g));
  OnnxValue move = a.div(a.mul(lr, g), a.add(w.node("Sqrt", {h}), a.number(op.getEpsilon().convertToDouble())));
  return {a.out(a.sub(p, move), op.getParam()), a.out(h, op.getAccumulator())};
}

} // namespace

void mpt::addReduceRules(ExportRules &rules) {
  addRule<ReduceOp>(rules, [](ReduceOp op, OnnxWriter &w) { return Values{exportReduce(op, w)}; });
  addRule<ArgReduceOp>(rules, [](ArgReduceOp op, OnnxWriter &w) {
    return Values{w.node(
        op.getKind() == ReduceKind::max ? "ArgMax" : "ArgMin", {w.get(op.getX())},
        {{"axis", int64_t(op.getAxis())}, {"keepdims", int64_t(0)}, {"select_last_index", int64_t(op.getLast())}})};
  });
  addRule<CumSumOp>(rules, [](CumSumOp op, OnnxWriter &w) {
    Type from = elementOf(op.getX()), type = isa<FloatType>(from) ? Type(wideType(from)) : from;
    OnnxValue axis = w.scalar(IntegerType::get(op.getContext(), 64), op.getAxis());
    OnnxValue y = w.node("CumSum", {w.cast(w.get(op.getX()), from, type), axis},
                         {{"exclusive", int64_t(op.getExclusive())}, {"reverse", int64_t(op.getReverse())}});
    return Values{w.cast(y, type, from)};
  });
  addRule<SoftmaxCrossEntropyOp>(rules,
                                 [](SoftmaxCrossEntropyOp op, OnnxWriter &w) { return exportCrossEntropy(op, w); });
  addRule<SoftmaxCrossEntropyBackwardOp>(
      rules, [](SoftmaxCrossEntropyBackwardOp op, OnnxWriter &w) { return Values{exportCrossEntropyBackward(op, w)}; });
  addRule<SGDOp>(rules, [](SGDOp op, OnnxWriter &w) { return exportSGD(op, w); });
  addRule<AdamOp>(rules, [](AdamOp op, OnnxWriter &w) { return exportAdam(op, w); });
  addRule<AdagradOp>(rules, [](AdagradOp op, OnnxWriter &w) { return exportAdagrad(op, w); });
}
