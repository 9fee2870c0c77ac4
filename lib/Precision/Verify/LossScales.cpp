// SPDX-License-Identifier: Apache-2.0
// Which scales losses are multiplied by, and how a dynamic one moves.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Precision/StepRules.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Values that depend on a loss that is multiplied by a scale.
DenseSet<Value> fromScaledLosses(func::FuncOp function) {
  DenseSet<Value> reached;
  for (Operation &op : function.getBody().front()) {
    bool starts = isa<train::ScaleLossOp>(op) && !hasAttr<MPTDialect::SeedAttrHelper>(&op);
    if (starts || llvm::any_of(op.getOperands(), [&](Value operand) { return reached.contains(operand); }))
      reached.insert(op.result_begin(), op.result_end());
  }
  return reached;
}

/// The float state of role scale that `value` was read from.
StringAttr scaleState(const StepFunction &step, Value value) {
  StringAttr name = step.reads.lookup(value);
  train::StateOp state = name ? step.state(name) : train::StateOp();
  return state && state.getRole() == train::Role::scale ? name : StringAttr();
}

/// The scales of a dynamic policy in a function that updates parameters.
class ScaleUpdates {
public:
  ScaleUpdates(const StepFunction &step, const LossScaling &scaling)
      : step(step), scaling(scaling), checks(step.getFunction()) {}

  LogicalResult verify() {
    for (auto loss : step.getFunction().getOps<train::ScaleLossOp>())
      if (StringAttr name = scaleState(step, loss.getScale()); name && !llvm::is_contained(scales, name))
        scales.push_back(name);
    for (auto update : step.getFunction().getOps<train::UpdateScaleOp>())
      updates[scaleState(step, update.getScale())].push_back(update);
    sortChecks();
    bool fine = true;
    for (StringAttr scale : scales) {
      ArrayRef<train::UpdateScaleOp> found = updates[scale];
      if (found.size() != 1) {
        step.getFunction().emitOpError() << "expected one update of " << scale.getValue()
                                         << ", by which the policy moves it, got " << found.size()
                                         << ": run precision-loss-scaling";
        fine = false;
        continue;
      }
      fine &= succeeded(verifyState(found[0], scale)) && succeeded(verifyOptions(found[0])) &&
              succeeded(verifyFinite(found[0], scale));
    }
    return success(fine);
  }

private:
  /// A check of gradients which carried one scale alone attributes an error to it; the others, to all scales.
  void sortChecks() {
    for (Operation *check : checks.getChecks()) {
      SmallVector<StringAttr> carried;
      for (Value value : check->getOperands()) {
        auto gradient = value.getDefiningOp<train::GradientOp>();
        auto unscale = gradient ? gradient.getGradient().getDefiningOp<train::UnscaleOp>() : train::UnscaleOp();
        carried.push_back(unscale ? scaleState(step, unscale.getScale()) : StringAttr());
      }
      bool alone = llvm::all_equal(carried) && carried.front() && scales.size() > 1;
      (alone ? own[carried.front()] : shared).push_back(check);
    }
  }

  /// All three parts are read from states, and written back to the same ones, whether or not the step commits.
  LogicalResult verifyState(train::UpdateScaleOp update, StringAttr scale) {
    Value next = update.getNewScale();
    for (Operation *user : next.getUsers())
      if (auto floor = dyn_cast<train::FloorScaleOp>(user)) {
        next = floor.getNewScale();
        if (failed(verifyFloor(floor, update)))
          return failure();
        if (StringAttr steps = step.reads.lookup(floor.getSteps()); !steps || !step.advances(steps, {1}))
          return floor.emitOpError() << "expected a state that each call raises by 1, by which floors go";
      }
    if ((next != update.getNewScale()) != !scaling.floors.empty())
      return update.emitOpError() << "expected " << (scaling.floors.empty() ? "no floor" : "a floor")
                                  << " under the scale, as the policy says";
    std::pair<StringAttr, Value> parts[] = {
        {scale, next},
        {step.reads.lookup(update.getGoodSteps()), update.getNewGoodSteps()},
        {step.reads.lookup(update.getHysteresisLeft()), update.getNewHysteresisLeft()}};
    for (auto [name, value] : parts) {
      train::WriteOp write = name ? step.writes.lookup(name) : train::WriteOp();
      if (!write || write.getValue() != value || write.getCondition())
        return update.emitOpError() << "expected its results to be the next values of the states that it reads, "
                                       "written without a condition";
    }
    return success();
  }

  /// The floor bounds the new scale that the update makes of its scale, and moves as the policy says.
  LogicalResult verifyFloor(train::FloorScaleOp floor, train::UpdateScaleOp update) {
    if (floor.getNext() != update.getNewScale() || floor.getScale() != update.getScale() ||
        floor.getHysteresisLeft() != update.getNewHysteresisLeft())
      return floor.emitOpError()
             << "expected the next scale, the scale and the hysteresis of one update, in this order";
    if (floor.getFloorSteps() == ArrayRef(scaling.floorSteps) && floor.getFloors() == ArrayRef(scaling.floors) &&
        static_cast<int64_t>(floor.getHysteresis()) == scaling.hysteresis &&
        static_cast<int64_t>(floor.getPatience()) == scaling.patience)
      return success();
    return floor.emitOpError() << "expected the policy's floors, hysteresis and patience";
  }

  LogicalResult verifyOptions(train::UpdateScaleOp update) {
    auto is = [](const APFloat &value, double wanted) { return value.convertToDouble() == wanted; };
    if (is(update.getGrowth(), scaling.growth) && is(update.getBackoff(), scaling.backoff) &&
        is(update.getMin(), scaling.min) && is(update.getMax(), scaling.max) &&
        static_cast<int64_t>(update.getInterval()) == scaling.interval &&
        static_cast<int64_t>(update.getHysteresis()) == scaling.hysteresis)
      return success();
    return update.emitOpError() << "expected the policy's growth, backoff, interval, hysteresis, min and max";
  }

  /// Finite where all gradients are. Not finite where a check of this loss alone fails, or a shared check while all
  /// checks of single losses hold.
  LogicalResult verifyFinite(train::UpdateScaleOp update, StringAttr scale) {
    Value finite = update.getFinite();
    bool fine = checks.evaluate(finite, checks.allHold()) == Flag(true);
    for (Operation *check : own[scale])
      fine &= checks.evaluate(finite, {{check, false}}) == Flag(false);
    for (Operation *check : shared) {
      FiniteChecks::Known known{{check, false}};
      for (auto &[other, list] : own)
        for (Operation *mine : list)
          known[mine] = true;
      fine &= checks.evaluate(finite, known) == Flag(false);
    }
    for (auto &[other, list] : own)
      for (Operation *blamed : list) {
        if (other == scale)
          continue;
        FiniteChecks::Known known = checks.allHold(blamed);
        fine &= checks.evaluate(finite, known) == Flag(true);
        for (Operation *check : shared)
          known[check] = false;
        fine &= checks.evaluate(finite, known) == Flag(true);
      }
    if (fine)
      return success();
    return update.emitOpError() << "expected the finite check of the commit, as far as it is about " << scale.getValue()
                                << ": the scale would not move with the steps that are skipped";
  }

  const StepFunction &step;
  const LossScaling &scaling;
  FiniteChecks checks;
  SmallVector<StringAttr> scales;
  DenseMap<StringAttr, SmallVector<train::UpdateScaleOp, 1>> updates;
  DenseMap<StringAttr, SmallVector<Operation *>> own; ///< checks by scale
  SmallVector<Operation *> shared;
};

} // namespace

LogicalResult mpt::verifyScaledLosses(const StepFunction &step, const LossScaling &scaling) {
  if (!scaling.multiplies() && scaling.mode != Scaling::adaptive)
    return success();
  DenseSet<Value> scaled = fromScaledLosses(step.getFunction());
  bool fine = true, any = false;
  for (auto loss : step.getFunction().getOps<train::ScaleLossOp>()) {
    if (hasAttr<MPTDialect::SeedAttrHelper>(loss))
      continue;
    any = true;
    if (scaling.mode == Scaling::dynamic && !scaleState(step, loss.getScale())) {
      loss.emitOpError() << "expected a scale that is read from state, since the policy moves it, got another value";
      fine = false;
    }
  }
  if (!any)
    return step.getFunction().emitOpError()
           << "expected the loss to be scaled, as the policy says: run precision-loss-scaling";
  for (auto gradient : step.getFunction().getOps<train::GradientOp>())
    if (!scaled.contains(gradient.getGradient())) {
      gradient.emitOpError() << "expected a gradient of a loss that is scaled, as the policy says, got one of another "
                                "seed: train.scale_loss is missing";
      fine = false;
    }
  return success(fine);
}

LogicalResult mpt::verifyScaleUpdates(const StepFunction &step, const LossScaling &scaling) {
  if (scaling.mode != Scaling::dynamic)
    return success();
  if (step.updates)
    return ScaleUpdates(step, scaling).verify();
  for (auto &[name, write] : step.writes)
    if (train::StateOp state = step.state(name); state && state.getRole() == train::Role::scale)
      return train::WriteOp(write).emitOpError()
             << "expected the scale to stay as it is in a function that updates no parameter";
  return success();
}
