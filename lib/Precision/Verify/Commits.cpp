// SPDX-License-Identifier: Apache-2.0
// Conditions of writes: the values that they prove finite, and the writes that need proof.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/StepRules.h"

using namespace mlir;
using namespace mpt;

StepFunction::StepFunction(func::FuncOp function, const States &states) : states(states), function(function) {
  for (auto write : function.getOps<train::WriteOp>()) {
    writes.try_emplace(write.getStateAttr().getAttr(), write);
    train::StateOp target = state(write.getStateAttr().getAttr());
    updates |= target && (target.getRole() == train::Role::parameter || target.getRole() == train::Role::master);
  }
  for (auto read : function.getOps<train::ReadOp>())
    reads[read.getValue()] = read.getStateAttr().getAttr();
  for (auto gradient : function.getOps<train::GradientOp>())
    gradients[gradient.getResult()] = gradient.getParameterAttr().getAttr();
}

bool StepFunction::advances(StringAttr name, ArrayRef<int64_t> by) const {
  train::WriteOp write = writes.lookup(name);
  auto sum = write && !write.getCondition() ? train::WriteOp(write).getValue().getDefiningOp<AddOp>() : AddOp();
  auto constant = sum ? sum.getRhs().getDefiningOp<ConstantOp>() : ConstantOp();
  auto elements = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : DenseIntElementsAttr();
  return elements && reads.lookup(sum.getLhs()) == name &&
         elements.getNumElements() == static_cast<int64_t>(by.size()) &&
         llvm::all_of(llvm::zip_equal(elements.getValues<APInt>(), by),
                      [](auto pair) { return std::get<0>(pair).getSExtValue() == std::get<1>(pair); });
}

namespace {

/// A skipped step still draws new random bits and moves the scale; sums over micro-steps take up non-finite values.
bool commitsAlways(train::Role role) {
  return role == train::Role::rng || role == train::Role::scale || role == train::Role::accumulator;
}

/// The commits of one function under each of its conditions.
class Commits {
public:
  Commits(const StepFunction &step, const ScaleFlow &flow) : step(step), flow(flow), checks(step.getFunction()) {}

  LogicalResult verify() {
    bool fine = true;
    for (auto write : step.getFunction().getOps<train::WriteOp>()) {
      train::StateOp state = step.state(write.getStateAttr().getAttr());
      if (state && !commitsAlways(state.getRole()))
        fine &= succeeded(verify(write));
    }
    return success(fine && succeeded(verifySkipped()));
  }

private:
  LogicalResult verify(train::WriteOp write) {
    Value condition = write.getCondition();
    if (!condition)
      return write.emitOpError() << "expected a condition: a step whose gradients are not finite must leave "
                                 << write.getState() << " as it is";
    if (failed(verify(condition, write)))
      return failure();
    if (unproven(condition).contains(write.getValue()))
      return write.emitOpError() << "expected a finite check of every gradient that reaches " << write.getState()
                                 << ", got one that does not look at some: add them to train.all_finite";
    return success();
  }

  /// The checks of all writes under `condition`, once.
  LogicalResult verify(Value condition, train::WriteOp write) {
    auto [known, isNew] = verified.try_emplace(condition, true);
    if (!isNew)
      return success(known->second);
    known->second = false;
    if (checks.evaluate(condition, checks.allHold()) == Flag(false))
      return write.emitOpError() << "expected a condition that a finite step meets, got one that never holds";
    const DenseSet<Value> &proven = checks.provenBy(condition);
    for (auto gradient : step.getFunction().getOps<train::GradientOp>())
      if (!proven.contains(gradient.getResult()) && !proven.contains(gradient.getGradient()))
        return write.emitOpError() << "expected a condition that holds only where the gradient of "
                                   << gradient.getParameter() << " is finite: add it to train.all_finite";
    // Terms that earlier micro-steps left in a sum were checked by nobody yet.
    for (auto read : step.getFunction().getOps<train::ReadOp>())
      if (train::StateOp sum = step.state(read.getStateAttr().getAttr());
          step.updates && sum && sum.getRole() == train::Role::accumulator && !proven.contains(read.getValue()))
        return write.emitOpError() << "expected a condition that holds only where " << read.getState()
                                   << " is finite: add the sum to train.all_finite";
    for (Operation &op : step.getFunction().getBody().front())
      if (hasAttr<MPTDialect::CheckedAttrHelper>(&op) && !proven.contains(op.getResult(0)))
        return write.emitOpError() << "expected a condition that holds only where what " << op.getName().getStringRef()
                                   << " looks at is finite (mpt.checked): add it to "
                                   << "train.all_finite";
    known->second = true;
    return success();
  }

  /// Values that depend on the scaled loss by a way on which no gradient is proven finite. A value that still carries a
  /// scale is no gradient, finite or not: more is computed of it.
  const DenseSet<Value> &unproven(Value condition) {
    auto [entry, isNew] = reached.try_emplace(condition);
    DenseSet<Value> &values = entry->second;
    if (!isNew)
      return values;
    const DenseSet<Value> &proven = checks.provenBy(condition);
    for (Operation &op : step.getFunction().getBody().front()) {
      auto rule = dyn_cast<GradientScale>(op);
      if (rule && rule.checksFinite())
        continue;
      bool starts = isa<train::ScaleLossOp>(op) || hasAttr<MPTDialect::SeedAttrHelper>(&op);
      if (starts || llvm::any_of(op.getOperands(), [&](Value operand) { return values.contains(operand); }))
        for (Value result : op.getResults())
          if (!proven.contains(result) || (!flow.of(result).isUnscaled() && !checks.looksAt(result)))
            values.insert(result);
    }
    return values;
  }

  /// The step says that it was skipped if and only if a check failed.
  LogicalResult verifySkipped() {
    Operation *end = step.getFunction().getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands())) {
      if (!train::resultIs(step.getFunction(), i, train::Role::skipped))
        continue;
      bool fine = checks.evaluate(value, checks.allHold()) == Flag(false);
      for (Operation *check : checks.getChecks())
        fine &= checks.evaluate(value, {{check, false}}) == Flag(true);
      if (!fine)
        return step.getFunction().emitOpError()
               << "expected result 'skipped' to be the opposite of the commits' condition";
    }
    return success();
  }

  const StepFunction &step;
  const ScaleFlow &flow;
  FiniteChecks checks;
  DenseMap<Value, bool> verified;
  DenseMap<Value, DenseSet<Value>> reached;
};

} // namespace

LogicalResult mpt::verifyCommits(const StepFunction &step, const ScaleFlow &flow, const LossScaling &scaling) {
  return scaling.mode == Scaling::none ? success() : Commits(step, flow).verify();
}
