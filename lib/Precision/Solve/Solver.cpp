// SPDX-License-Identifier: Apache-2.0
// The one solver: rules, flow, labels, and the placement of casts.
#include "Solver.h"

#include "mpt/Support/Refusal.h"

using namespace mlir;
using namespace mpt;

std::optional<Placement> mpt::symbolizePlacement(StringRef name) {
  return name == "cut"        ? std::optional(Placement::cut)
         : name == "painting" ? std::optional(Placement::painting)
                              : std::nullopt;
}

int64_t CostModel::cast(RankedTensorType wide, Type narrow) {
  return wide.getNumElements() * (wide.getElementTypeBitWidth() + narrow.getIntOrFloatBitWidth()) / 8;
}
int64_t CostModel::wideValue(RankedTensorType wide, Type narrow) {
  return wide.getNumElements() * (wide.getElementTypeBitWidth() - narrow.getIntOrFloatBitWidth()) / 8;
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

namespace {
class Solver {
public:
  Solver(GraphView &view, const Policy &policy) : view(view), policy(policy) {}

  Solved run(Placement how, OpDecided decided) {
    for (func::FuncOp function : view.functions())
      label(function);
    Labelling painted = placement.paint(ops);
    std::optional<Labelling> cut = how == Placement::cut ? bestCut(painted) : std::nullopt;
    const Labelling &narrow = cut ? *cut : painted;
    for (const OpLabels &labels : ops)
      report(labels, narrow, view.howItWasPlaced(!cut), decided);
    CastCost cost = placement.costOf(narrow, view.launchBytes());
    return {narrow, cost};
  }

private:
  void label(func::FuncOp function) {
    view.enter(function);
    for (BlockArgument argument : function.getArguments()) // of the types that callers know
      if (view.isDecidable(argument.getType()))
        placement.produce(argument, kWide, view.costOf(argument));
    RangeFlow flow(view);
    view.forEachOp([&](Operation *op) {
      RangeFact in = flow.into(op);
      flow.visit(op, in);
      if (std::optional<OpLabels> labels = view.label(op, in, placement))
        ops.push_back(std::move(*labels));
    });
  }

  /// The first cut whose casts move no more bytes than those of painting; nothing where none does.
  std::optional<Labelling> bestCut(const Labelling &painted) const {
    CastCost most = placement.costOf(painted, view.launchBytes());
    for (const Trial &trial : view.trials()) {
      Labelling narrow = placement.cut(trial.weights);
      CastCost cost = placement.costOf(narrow, view.launchBytes());
      bool moreLaunches = trial.comparesLaunches && cost.withLaunches > most.withLaunches;
      if (!moreLaunches && cost.inEachStep <= most.inEachStep)
        return narrow;
      refuse(view.passFlag().data(), view.functions().front())
          << "cut not taken: expected casts of at most " << most.inEachStep << " bytes, or " << most.withLaunches
          << " with launches, as painting's, got " << cost.inEachStep << " and " << cost.withLaunches;
    }
    return std::nullopt;
  }

  void report(const OpLabels &labels, const Labelling &narrow, StringRef how, OpDecided decided) const {
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
    if (anyFree && !how.empty() && isa<PrecisionSemantics>(labels.op))
      types.rule = StringAttr::get(labels.rule.getContext(), labels.rule.getValue() + how);
    types.quantized = labels.quantized;
    decided(labels.op, types);
  }

  GraphView &view;
  const Policy &policy;
  CastPlacement placement;
  std::vector<OpLabels> ops; ///< in topological order, function by function
};
} // namespace

Solved mpt::solve(GraphView &view, const Policy &policy, Placement placement, OpDecided decided) {
  return Solver(view, policy).run(placement, decided);
}
