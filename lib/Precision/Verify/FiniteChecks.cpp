// SPDX-License-Identifier: Apache-2.0
// Three-valued evaluation of conditions, and the values that they prove finite.
#include "mpt/Precision/FiniteChecks.h"

using namespace mlir;
using namespace mpt;

FiniteChecks::FiniteChecks(func::FuncOp function) {
  for (Operation &op : function.getBody().front())
    if (auto rule = dyn_cast<GradientScale>(op); rule && op.getNumOperands() != 0 && rule.checksFinite()) {
      checks.push_back(&op);
      operands.insert(op.operand_begin(), op.operand_end());
    }
}

Flag FiniteChecks::evaluate(Value flag, const Known &known, DenseMap<Value, Flag> &done) const {
  auto rule = flag.getDefiningOp<GradientScale>();
  if (!rule)
    return std::nullopt;
  if (auto found = known.find(rule); found != known.end())
    return found->second;
  if (auto found = done.find(flag); found != done.end())
    return found->second;
  SmallVector<Flag, 2> operands;
  for (Value operand : rule->getOperands())
    operands.push_back(getElementTypeOrSelf(operand.getType()).isInteger(1) ? evaluate(operand, known, done)
                                                                            : std::nullopt);
  Flag value = rule.evaluateFlag(operands);
  done[flag] = value;
  return value;
}

Flag FiniteChecks::evaluate(Value flag, const Known &known) const {
  DenseMap<Value, Flag> done;
  return evaluate(flag, known, done);
}

FiniteChecks::Known FiniteChecks::allHold(Operation *failing) const {
  Known known;
  for (Operation *check : checks)
    known[check] = check != failing;
  return known;
}

const DenseSet<Value> &FiniteChecks::provenBy(Value condition) {
  auto [entry, isNew] = proven.try_emplace(condition);
  if (!isNew)
    return entry->second;
  SmallVector<Value> work;
  // A check is needed where the condition cannot hold without it, whatever the others say.
  for (Operation *check : checks)
    if (evaluate(condition, {{check, false}}) == Flag(false))
      llvm::append_range(work, check->getOperands());
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!entry->second.insert(value).second)
      continue;
    if (auto rule = value.getDefiningOp<GradientScale>(); rule && rule.spreadsNonFinite())
      llvm::append_range(work, rule->getOperands());
  }
  return entry->second;
}
