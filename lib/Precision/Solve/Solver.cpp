// SPDX-License-Identifier: Apache-2.0
// The one solver: rules, flow, labels, and the placement of casts.
#include "Solver.h"

using namespace mlir;
using namespace mpt;

int64_t CostModel::cast(RankedTensorType wide, Type narrow) const {
  return (byTensor ? 1 : wide.getNumElements()) * (wide.getElementTypeBitWidth() + narrow.getIntOrFloatBitWidth()) / 8;
}
int64_t CostModel::wideValue(RankedTensorType wide, Type narrow) const {
  return (byTensor ? 1 : wide.getNumElements()) * (wide.getElementTypeBitWidth() - narrow.getIntOrFloatBitWidth()) / 8;
}

StringRef mpt::whyFlowKeepsWide(NumericClass numericClass, RangeFact in, bool knowsRange) {
  if (numericClass == NumericClass::Movement) // exact in any type
    return "";
  if (in.ranged && !knowsRange)
    return ": range of a wide op flows in";
  return in.narrowed ? "" : ": nothing narrow flows in";
}

std::string mpt::pinnedRule(StringRef why, const Ruling &ruling) {
  return (why + (asksForNarrow(ruling) ? " (" + ruling.rule + " does not apply)" : "")).str();
}

static void poseFunction(GraphView &view, func::FuncOp function, Posed &posed) {
  view.enter(function);
  for (BlockArgument argument : function.getArguments()) // of the types that callers know
    if (view.isDecidable(argument.getType()))
      posed.placement.produce(argument, kWide, view.costOf(argument));
  RangeFlow flow(view);
  view.forEachOp([&](Operation *op) {
    RangeFact in = flow.into(op);
    flow.visit(op, in);
    if (std::optional<OpLabels> labels = view.label(op, in, posed.placement))
      posed.ops.push_back(std::move(*labels));
  });
}

Posed mpt::pose(GraphView &view) {
  Posed posed;
  for (func::FuncOp function : view.functions())
    poseFunction(view, function, posed);
  return posed;
}

namespace {
class Solver {
public:
  Solver(GraphView &view, const Policy &policy) : view(view), policy(policy), posed(pose(view)) {}

  Solved run(OpDecided decided) {
    Labelling narrow = posed.placement.cut(view.weights());
    for (const OpLabels &labels : posed.ops)
      report(labels, narrow, decided);
    return {narrow, posed.placement.bytesOf(narrow)};
  }

private:
  void report(const OpLabels &labels, const Labelling &narrow, OpDecided decided) const {
    OpTypes types;
    bool anyDecidable = false, anyFree = false;
    auto fill = [&](TypeRange from, ArrayRef<Label> slots, Type other, SmallVectorImpl<Type> &to) {
      for (auto [type, label] : llvm::zip_equal(from, slots)) {
        bool decidable = view.isDecidable(type);
        anyDecidable |= decidable;
        anyFree |= decidable && isFree(label);
        to.push_back(!decidable || label == kEither ? Type()
                     : narrow[label]                ? policy.storage
                     : label == kWide && other      ? other
                                                    : Type(Float32Type::get(type.getContext())));
      }
    };
    fill(labels.op->getOperandTypes(), labels.operands, labels.wideOperands, types.operands);
    fill(labels.op->getResultTypes(), labels.results, labels.wideResults, types.results);
    if (!anyDecidable)
      return;
    types.rule = labels.rule;
    if (StringRef how = view.howItWasPlaced(); anyFree && !how.empty() && isa<PrecisionSemantics>(labels.op))
      types.rule = StringAttr::get(labels.rule.getContext(), labels.rule.getValue() + how);
    types.quantized = labels.quantized;
    decided(labels.op, types);
  }

  GraphView &view;
  const Policy &policy;
  Posed posed;
};
} // namespace

Solved mpt::solve(GraphView &view, const Policy &policy, OpDecided decided) {
  return Solver(view, policy).run(decided);
}
