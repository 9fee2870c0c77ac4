// SPDX-License-Identifier: Apache-2.0
// The sources of new values of parameters, masters, optimizer state and accumulators.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/StepRules.h"

using namespace mlir;
using namespace mpt;

std::string mpt::remainderOf(StringRef parameter) { return (parameter + ".remainder").str(); }

namespace {

/// The states and gradients that a new value reads directly: neither through a gradient nor, for tensors, through a
/// scalar, as the coefficient of clipping is.
struct Sources {
  DenseSet<StringAttr> states, gradients;
};

class Updates {
public:
  explicit Updates(const StepFunction &step) : step(step) {
    for (auto [name, state] : step.states) {
      if (state.getRole() == train::Role::master && state.getOfAttr())
        masters[state.getOfAttr()] = name;
      if (state.getRole() == train::Role::accumulator && state.getOfAttr())
        accumulators[state.getOfAttr()] = name;
      accumulates |= state.getRole() == train::Role::accumulator && step.writes.contains(name);
    }
  }

  LogicalResult verify() {
    bool fine = succeeded(verifySingleWrites());
    if (step.updates || accumulates)
      for (auto gradient : step.getFunction().getOps<train::GradientOp>())
        fine &= succeeded(verifyWritten(gradient));
    for (auto write : step.getFunction().getOps<train::WriteOp>())
      if (train::StateOp state = step.state(write.getStateAttr().getAttr()))
        fine &= succeeded(verifyWrite(write, state));
    if (step.updates || accumulates)
      for (auto read : step.getFunction().getOps<train::ReadOp>())
        fine &= succeeded(verifyKept(read));
    return success(fine);
  }

private:
  LogicalResult verifySingleWrites() {
    for (auto write : step.getFunction().getOps<train::WriteOp>())
      if (step.writes.lookup(write.getStateAttr().getAttr()) != write)
        return write.emitOpError() << "expected one write of " << write.getState() << " a function, got another";
    return success();
  }

  /// A step that updates parameters updates all that it computes gradients of, with their masters; one that sums sums
  /// all.
  LogicalResult verifyWritten(train::GradientOp gradient) {
    StringAttr name = gradient.getParameterAttr().getAttr();
    train::StateOp state = step.state(name);
    if (!state || state.getFrozen())
      return success();
    StringAttr parameter = step.updates ? name : StringAttr(),
               master = step.updates ? masters.lookup(name) : StringAttr();
    for (StringAttr target : {parameter, master, accumulators.lookup(name)})
      if (target && !step.writes.contains(target))
        return gradient.emitOpError() << "expected a write of " << target.getValue()
                                      << ", which this is the gradient of";
    return success();
  }

  LogicalResult verifyWrite(train::WriteOp write, train::StateOp state) {
    StringAttr name = state.getSymNameAttr();
    switch (state.getRole()) {
    case train::Role::parameter:
      if (masters.contains(name))
        return verifyCopy(write, name);
      return success(succeeded(verifyUpdate(write, name, name)) && succeeded(verifyRemainder(write, name)));
    case train::Role::master:
      return state.getOfAttr() ? verifyUpdate(write, name, state.getOfAttr()) : success();
    case train::Role::slot:
      return verifySlot(write, name);
    case train::Role::accumulator:
      return verifyAccumulator(write, state);
    case train::Role::rng: // the model's own generators count the model's draws
      if (name != train::TrainDialect::kRounding || step.advances(name, {0, 1}))
        return success();
      return write.emitOpError() << "expected new random bits for the rounding of each call: the step plus 1";
    default:
      return success();
    }
  }

  /// A narrow parameter is its master, rounded, and stays where that stays.
  LogicalResult verifyCopy(train::WriteOp write, StringAttr name) {
    auto copy = write.getValue().getDefiningOp<CastOp>();
    train::WriteOp master = step.writes.lookup(masters.lookup(name));
    if (!copy || !master || copy.getX() != master.getValue() || write.getCondition() != master.getCondition())
      return write.emitOpError() << "expected the new master of " << write.getState()
                                 << ", rounded by one cast, under the master's condition";
    return success();
  }

  /// A parameter with a remainder starts from it, and leaves in it the error of its own rounding.
  LogicalResult verifyRemainder(train::WriteOp write, StringAttr name) {
    auto rest = StringAttr::get(name.getContext(), remainderOf(name.getValue()));
    train::StateOp state = step.state(rest);
    if (!state || state.getOfAttr() != name)
      return success();
    if (!sourcesOf(write.getValue()).states.contains(rest))
      return write.emitOpError() << "expected an update of " << write.getState() << " that starts from "
                                 << rest.getValue() << " too, got one without it";
    train::WriteOp kept = step.writes.lookup(rest);
    auto copy = write.getValue().getDefiningOp<CastOp>(),
         last = kept ? kept.getValue().getDefiningOp<CastOp>() : CastOp();
    auto left = last ? last.getX().getDefiningOp<SubOp>() : SubOp();
    auto wide = left ? left.getRhs().getDefiningOp<CastOp>() : CastOp();
    if (!copy || !wide || wide.getX() != copy.getY() || left.getLhs() != copy.getX() ||
        kept.getCondition() != write.getCondition())
      return write.emitOpError() << "expected " << rest.getValue() << " to get what the rounding of "
                                 << write.getState() << " leaves out, under the same condition";
    return success();
  }

  LogicalResult verifyUpdate(train::WriteOp write, StringAttr state, StringAttr parameter) {
    if (llvm::none_of(step.gradients, [&](const auto &known) { return known.second == parameter; }))
      return success(); // not by a gradient
    Sources from = sourcesOf(write.getValue());
    if (state != parameter && from.states.contains(parameter))
      return write.emitOpError() << "expected an update of the master " << state.getValue()
                                 << ", got one that reads the narrow copy " << parameter.getValue() << " beside it";
    if (StringAttr sum = accumulators.lookup(parameter); sum && !from.states.contains(sum))
      return write.emitOpError() << "expected an update by " << sum.getValue() << ", got one without it";
    for (StringAttr other : from.states)
      if (train::StateOp known = step.state(other);
          known && !from.states.contains(state) &&
          (known.getRole() == train::Role::parameter || known.getRole() == train::Role::master))
        return write.emitOpError() << "expected an update that starts from " << state.getValue() << ", got one from "
                                   << other.getValue();
    if (!from.gradients.empty() && !from.gradients.contains(parameter))
      return write.emitOpError() << "expected an update by the gradient of " << parameter.getValue()
                                 << ", got one by that of " << from.gradients.begin()->getValue();
    return success();
  }

  LogicalResult verifySlot(train::WriteOp write, StringAttr name) {
    Sources from = sourcesOf(write.getValue());
    if (from.states.contains(name))
      return success();
    for (StringAttr other : from.states)
      if (train::StateOp state = step.state(other); state && state.getRole() == train::Role::slot)
        return write.emitOpError() << "expected slot " << name.getValue() << " to be made of itself, got one made of "
                                   << other.getValue();
    return success();
  }

  /// Emptied where parameters are updated, and else the old value plus the gradient.
  LogicalResult verifyAccumulator(train::WriteOp write, train::StateOp state) {
    StringAttr name = state.getSymNameAttr();
    if (step.updates) {
      auto reads = llvm::make_filter_range(step.reads, [&](const auto &read) { return read.second == name; });
      if (!matchesZero(write.getValue()) || reads.empty())
        return write.emitOpError() << "expected " << name.getValue()
                                   << " to be read and emptied by the step that updates";
      return success();
    }
    Sources from = sourcesOf(write.getValue());
    if (!from.states.contains(name) || (state.getOfAttr() && !from.gradients.contains(state.getOfAttr())))
      return write.emitOpError() << "expected " << name.getValue() << " plus the gradient of "
                                 << state.getOf().value_or("it");
    return success();
  }

  static bool matchesZero(Value value) {
    auto constant = value.getDefiningOp<ConstantOp>();
    auto elements = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
    return elements && elements.isSplat() && elements.getSplatValue<APFloat>().isZero();
  }

  /// An optimizer also writes the step's own states that it reads; micro-steps round by new random bits, too.
  LogicalResult verifyKept(train::ReadOp read) {
    train::StateOp state = step.state(read.getStateAttr().getAttr());
    if (!state || step.writes.contains(state.getSymNameAttr()))
      return success();
    bool moves = state.getSymName() == train::TrainDialect::kRounding;
    if (step.updates)
      moves |= state.getRole() == train::Role::slot || state.getRole() == train::Role::accumulator ||
               state.getRole() == train::Role::scale || state.getRole() == train::Role::counter;
    if (!moves)
      return success();
    return read.emitOpError() << "expected a write of " << read.getState() << " in the function that updates by it";
  }

  Sources sourcesOf(Value value) {
    Sources sources;
    bool tensor = rankOf(value) > 0;
    SmallVector<Value> work{value};
    DenseSet<Value> seen;
    while (!work.empty()) {
      Value next = work.pop_back_val();
      if (!seen.insert(next).second || (tensor && rankOf(next) == 0))
        continue;
      if (StringAttr gradient = step.gradients.lookup(next)) {
        sources.gradients.insert(gradient);
        continue;
      }
      if (StringAttr read = step.reads.lookup(next))
        sources.states.insert(read);
      if (Operation *op = next.getDefiningOp())
        llvm::append_range(work, op->getOperands());
    }
    return sources;
  }
  static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

  const StepFunction &step;
  DenseMap<StringAttr, StringAttr> masters, accumulators; ///< by parameter
  bool accumulates = false;                               ///< the function writes an accumulator
};

} // namespace

LogicalResult mpt::verifyUpdates(const StepFunction &step) { return Updates(step).verify(); }
