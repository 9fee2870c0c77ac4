// SPDX-License-Identifier: Apache-2.0
// Inference of scale types through fusions and library calls, and what may be committed of them.
#include "mpt/Precision/LoweredScales.h"

#include "Rules.h"

#include "mpt-c/types.h"
#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;
using train::TrainDialect;

// ---- numbers

Value ValueNumbers::of(Value value) const {
  auto found = firsts.find(value);
  return found == firsts.end() ? value : found->second;
}

void ValueNumbers::add(Operation *op) {
  if (op->getNumResults() == 0)
    return;
  constexpr auto flags =
      OperationEquivalence::Flags(OperationEquivalence::IgnoreLocations | OperationEquivalence::IgnoreDiscardableAttrs);
  size_t hash = OperationEquivalence::computeHash(
      op, [&](Value value) { return hash_value(of(value)); }, OperationEquivalence::ignoreHashValue, flags);
  SmallVector<Operation *, 1> &alike = seen[hash];
  auto isSame = [&](Value a, Value b) { return success(of(a) == of(b)); };
  for (Operation *other : alike)
    if (OperationEquivalence::isEquivalentTo(other, op, isSame, nullptr, flags)) {
      for (auto [result, first] : llvm::zip_equal(op->getResults(), other->getResults()))
        firsts.insert({result, first});
      return;
    }
  alike.push_back(op);
}

// ---- inference

ScaleType LoweredScaleFlow::of(Value value) const {
  auto found = types.find(value);
  return found == types.end() ? ScaleType::unscaled() : found->second;
}

/// A number is itself times one, so that one of unknown scale is a scale by its own name.
void LoweredScaleFlow::set(Value result, ScaleType type) {
  if (type.isElementwise() && countOf(result) == 1)
    type = ScaleType::of(numbers.of(result));
  if (!type.isUnscaled() || type.isScaleMaterial())
    types.insert_or_assign(result, std::move(type));
}

ScaleType LoweredScaleFlow::ofState(Value read, StringRef name) const {
  train::StateOp state = states.lookup(StringAttr::get(context, name));
  if (name == TrainDialect::kAmaxHistory)
    return ScaleType::mixed();
  if (name == TrainDialect::kTensorScales || (state && state.getRole() == train::Role::scale))
    return read && countOf(read) == 1 ? ScaleType::of(numbers.of(read)) : ScaleType::scales();
  return ScaleType::unscaled();
}

/// Nobody hears of it: what comes of the op has an unknown scale.
InFlightDiagnostic LoweredScaleFlow::refuse() {
  refused = true;
  InFlightDiagnostic unheard = emitError(UnknownLoc::get(context));
  unheard.abandon();
  return unheard;
}

/// All results of `op` have an unknown scale, flags and indices too: they may differ with the scale.
void LoweredScaleFlow::lose(Operation *op) {
  Operation *origin = op;
  for (Value operand : op->getOperands())
    if (auto found = unknown.find(operand); found != unknown.end())
      origin = found->second;
  for (Value result : op->getResults()) {
    unknown.insert({result, origin});
    if (scales::carriesScales(result))
      set(result, ScaleType::mixed());
  }
}

void LoweredScaleFlow::enter(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  auto name = [&](Value value, Value other) {
    numbers.alias(value, other);
    if (auto type = types.find(other); type != types.end())
      types.insert({value, ScaleType(type->second)});
    if (auto lost = unknown.find(other); lost != unknown.end())
      unknown.insert({value, lost->second});
  };
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), fusion.getInputs()))
    name(argument, input);
  infer(body);
  for (auto [output, value] : llvm::zip_equal(fusion.getOutputs(), body.getTerminator()->getOperands()))
    name(output, value);
}

void LoweredScaleFlow::infer(Operation *op) {
  if (auto fusion = dyn_cast<FusionOp>(op))
    return enter(fusion);
  numbers.add(op);
  current = op;
  refused = false;
  if (auto rule = dyn_cast<GradientScale>(op))
    rule.inferScales(*this);
  else
    refused = !op->hasTrait<OpTrait::IsTerminator>() &&
              llvm::any_of(op->getOperands(), [&](Value operand) { return !of(operand).isUnscaled(); });
  if (hasAttr<TrainDialect::ScaleAttrHelper>(op)) {
    for (Value result : op->getResults())
      set(result, ScaleType::scales());
    return;
  }
  auto isUnknown = [&](Value operand) { return unknown.contains(operand) && !scales::carriesScales(operand); };
  if (refused || llvm::any_of(op->getOperands(), isUnknown))
    lose(op);
}

void LoweredScaleFlow::infer(Block &block) {
  for (Operation &op : block)
    infer(&op);
}

// ---- what is committed and returned

void LoweredScaleFlow::explain(InFlightDiagnostic &diagnostic, Value value) const {
  if (auto found = unknown.find(value); found != unknown.end())
    diagnostic.attachNote(found->second->getLoc()) << "from " << found->second->getName() << " on its scale is unknown";
  diagnostic << ": a pass behind precision-verify lost, doubled or added a factor";
}

LogicalResult LoweredScaleFlow::verifyWrite(train::WriteOp write) {
  if (!scales::carriesScales(write.getValue()) || !ofState(Value(), write.getState()).isUnscaled())
    return success();
  ScaleType type = of(write.getValue());
  if (type.isUnscaled() || type.isZero())
    return success();
  InFlightDiagnostic diagnostic = write.emitOpError();
  diagnostic << "expected a value without a scale for state " << write.getState() << ", got " << type.str();
  explain(diagnostic, write.getValue());
  return failure();
}

/// A result of a function is a number of the model, the scale that is reported, or what replicas agree on by its
/// largest value: scales themselves do so, and no gradient does.
LogicalResult LoweredScaleFlow::verifyResult(OpOperand &result) {
  ScaleType type = of(result.get());
  auto isOpaque = [&](const ScaleType::Power &power) { return unknown.contains(power.first); };
  StringAttr name = getResultAttr<MPTDialect::NameAttrHelper>(function, result.getOperandNumber());
  bool reports = name && name == kReportedScale, agrees = name && name.getValue().starts_with(MPT_NAME_MAX);
  bool observed = bool(getResultAttr<check::CheckDialect::ObservedAttrHelper>(function, result.getOperandNumber()));
  if (observed || !scales::carriesScales(result.get()) || type.isUnscaled() || type.isZero() ||
      (agrees && type.isScales()) ||
      ((reports || agrees) && type.isScale() && llvm::none_of(type.getPowers(), isOpaque)))
    return success();
  InFlightDiagnostic diagnostic = result.getOwner()->emitOpError();
  diagnostic << "expected result " << result.getOperandNumber() << " without a scale, got " << type.str();
  explain(diagnostic, result.get());
  return failure();
}

LogicalResult LoweredScaleFlow::verify() {
  Block &body = function.getBody().front();
  infer(body);
  bool fine = true;
  for (auto write : body.getOps<train::WriteOp>())
    fine &= succeeded(verifyWrite(write));
  for (OpOperand &result : body.getTerminator()->getOpOperands())
    fine &= succeeded(verifyResult(result));
  return success(fine);
}

bool mpt::hasScales(ModuleOp module) {
  bool states = llvm::any_of(module.getOps<train::StateOp>(), [](train::StateOp state) {
    return state.getRole() == train::Role::scale || state.getSymName() == TrainDialect::kTensorScales;
  });
  return states || module
                       .walk([](Operation *op) {
                         return hasAttr<TrainDialect::ScaleAttrHelper>(op) ? WalkResult::interrupt()
                                                                           : WalkResult::advance();
                       })
                       .wasInterrupted();
}
