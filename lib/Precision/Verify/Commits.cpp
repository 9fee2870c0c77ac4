// SPDX-License-Identifier: Apache-2.0
// Conditions of writes: the values that they prove finite, and the writes that need proof.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/OwnUpdates.h"
#include "mpt/Precision/Slots.h"
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
  return write && !write.getCondition() && advances(write, by);
}

bool StepFunction::advances(train::WriteOp write, ArrayRef<int64_t> by) const {
  StringAttr name = write.getStateAttr().getAttr();
  auto sum = write.getValue().getDefiningOp<AddOp>();
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
  Commits(const StepFunction &step, const ScaleFlow &flow, bool byParameter)
      : step(step), flow(flow), checks(step.getFunction()), updates(step.getFunction(), step.states),
        loss(byParameter && step.updates ? lossValue(step.getFunction()) : Value()), byParameter(byParameter) {}

  LogicalResult verify() {
    bool fine = true;
    if (byParameter && step.updates && !loss)
      return step.getFunction().emitOpError() << "expected a result that is the loss for a finite check by parameter";
    for (auto write : step.getFunction().getOps<train::WriteOp>()) {
      train::StateOp state = step.state(write.getStateAttr().getAttr());
      if (state && !commitsAlways(state.getRole()))
        fine &= succeeded(verify(write));
    }
    if (byParameter && step.updates)
      for (auto gradient : step.getFunction().getOps<train::GradientOp>())
        fine &= succeeded(verifyCounts(gradient.getParameterAttr().getAttr()));
    return success(fine && succeeded(verifySkipped()));
  }

private:
  LogicalResult verify(train::WriteOp write) {
    Value condition = write.getCondition();
    if (!condition)
      return write.emitOpError() << "expected a condition: a step whose gradients are not finite must leave "
                                 << write.getState() << " as it is";
    StringAttr owner = byParameter ? updates.ownerOf(write) : StringAttr();
    if (owner && write.getState() == extraUpdatesOf(owner.getValue()))
      return verifyExtra(write, owner);
    if (failed(owner ? verifyOwn(write, owner) : verify(condition, write)))
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
      if (failed(verifyProven(write, gradient)))
        return failure();
    if (loss && failed(verifyLoss(write)))
      return failure();
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

  LogicalResult verifyProven(train::WriteOp write, train::GradientOp gradient) {
    const DenseSet<Value> &proven = checks.provenBy(write.getCondition());
    if (proven.contains(gradient.getResult()) || proven.contains(gradient.getGradient()))
      return success();
    return write.emitOpError() << "expected a condition that holds only where the gradient of "
                               << gradient.getParameter() << " is finite: add it to train.all_finite";
  }
  LogicalResult verifyLoss(train::WriteOp write) {
    if (checks.provenBy(write.getCondition()).contains(loss))
      return success();
    return write.emitOpError()
           << "expected a condition that holds only where the loss is finite: what is not finite in "
              "the forward pass may be hidden in masks of the backward pass";
  }

  /// Under a check by parameter: the gradient of `owner` and the loss decide, and nothing else that is checked.
  LogicalResult verifyOwn(train::WriteOp write, StringAttr owner) {
    for (auto gradient : step.getFunction().getOps<train::GradientOp>())
      if (gradient.getParameterAttr().getAttr() == owner && failed(verifyProven(write, gradient)))
        return failure();
    if (failed(verifyLoss(write)))
      return failure();
    if (checks.evaluate(write.getCondition(), ownHold(owner)) == Flag(false))
      return write.emitOpError() << "expected a condition that holds wherever the gradient of " << owner.getValue()
                                 << " and the loss are finite, got one that more decides about";
    return updates.verify(write);
  }

  /// The checks of the gradient of `owner`, and of the loss, hold; the others hold or do not.
  FiniteChecks::Known ownHold(StringAttr owner) {
    FiniteChecks::Known known;
    for (Operation *check : checks.getChecks())
      known[check] = llvm::all_of(check->getOperands(),
                                  [&](Value value) { return value == loss || step.gradients.lookup(value) == owner; });
    return known;
  }

  /// Counts the updates of `owner` in steps that are skipped, and no others.
  LogicalResult verifyExtra(train::WriteOp write, StringAttr owner) {
    FiniteChecks::Known own = ownHold(owner);
    bool fine = step.advances(write, {1}) && checks.evaluate(write.getCondition(), checks.allHold()) == Flag(false);
    for (Operation *check : checks.getChecks())
      fine &= checks.evaluate(write.getCondition(), {{check, false}}) == (own[check] ? Flag(false) : Flag());
    if (llvm::any_of(own, [](auto &known) { return !known.second; }))
      fine &= checks.evaluate(write.getCondition(), own) == Flag(true);
    if (fine)
      return success();
    return write.emitOpError() << "expected a counter of the updates of " << owner.getValue()
                               << " in steps that are skipped, got another value or condition";
  }

  /// Updates that depend on the number of the step count those of their own parameter.
  LogicalResult verifyCounts(StringAttr owner) {
    auto name = StringAttr::get(owner.getContext(), extraUpdatesOf(owner.getValue()));
    for (OpOperand *count : updates.countsOf(owner)) {
      auto sum = count->get().getDefiningOp<AddOp>();
      if (!sum || step.reads.lookup(sum.getRhs()) != name || !step.writes.contains(name))
        return count->getOwner()->emitOpError()
               << "expected the number of the step plus " << name.getValue() << ", which counts the updates of "
               << owner.getValue() << " in skipped steps, got another number";
    }
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
  OwnUpdates updates;
  Value loss;       ///< of a step with a check by parameter
  bool byParameter; ///< whose own gradient is not finite
  DenseMap<Value, bool> verified;
  DenseMap<Value, DenseSet<Value>> reached;
};

} // namespace

LogicalResult mpt::verifyCommits(const StepFunction &step, const ScaleFlow &flow, const LossScaling &scaling) {
  return scaling.mode == Scaling::none ? success() : Commits(step, flow, scaling.checksByParameter()).verify();
}
