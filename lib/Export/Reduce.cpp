// SPDX-License-Identifier: Apache-2.0
// Export of reductions. Losses and optimizers are exported as their decompositions.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

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
  OnnxValue x = w.cast(w.get(op.getX()), from, type);
  if (op.getAxes().empty()) // no axes mean all of them in ONNX
    return w.cast(x, type, elementOf(op.getY()));
  OnnxValue y = w.node(reduceName(op.getKind()), {x, w.indices(op.getAxes())}, {{"keepdims", int64_t(0)}});
  return w.cast(y, type, elementOf(op.getY()));
}

/// No element of any operand is infinite or NaN. Zero times either is NaN, which sums keep; a maximum may lose NaN,
/// depending on the executor.
OnnxValue exportAllFinite(train::AllFiniteOp op, OnnxWriter &w) {
  OnnxValue all;
  for (Value value : op.getValues()) {
    Type type = elementOf(value), wide = wideType(type);
    OnnxValue zeros = w.node("Mul", {w.cast(w.get(value), type, wide), w.scalar(wide, 0)});
    OnnxValue sum = w.node("ReduceSum", {zeros}, {{"keepdims", int64_t(0)}});
    OnnxValue finite = w.node("Equal", {sum, w.scalar(wide, 0)});
    all = all.empty() ? finite : w.node("And", {all, finite});
  }
  return all.empty() ? w.scalar(IntegerType::get(op.getContext(), 1), 1) : all;
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
  addRule<train::AllFiniteOp>(rules,
                              [](train::AllFiniteOp op, OnnxWriter &w) { return Values{exportAllFinite(op, w)}; });
}
