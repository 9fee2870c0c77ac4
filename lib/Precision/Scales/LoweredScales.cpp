// SPDX-License-Identifier: Apache-2.0
// Inference of scale types through fusions and library calls, and checks of the committed values.
#include "mpt/Precision/LoweredScales.h"

#include "Rules.h"

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
    type = ScaleType::of(firstOf(result));
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

/// Nobody hears of it: results of the op have an unknown scale.
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

// ---- values that go from function to function

/// Name of an argument or a result that goes from function to function.
static StringAttr crossingName(DictionaryAttr attributes) {
  auto role =
      attributes ? attributes.getAs<train::RoleAttr>(TrainDialect::RoleAttrHelper::getNameStr()) : train::RoleAttr();
  bool crosses = role && llvm::is_contained({train::Role::kept, train::Role::sum, train::Role::max,
                                             train::Role::scatter, train::Role::gather},
                                            role.getValue());
  return crosses ? attributes.getAs<StringAttr>(MPTDialect::NameAttrHelper::getNameStr()) : StringAttr();
}

static std::string nameOf(size_t hash, bool ofStates) { return (ofStates ? "states " : "") + std::to_string(hash); }

/// The arithmetic of `value` on states, constants and crossing values, the same in every function; nothing where other
/// arguments are part of it.
std::optional<LoweredScaleFlow::Arithmetic> LoweredScaleFlow::arithmeticOf(Value value, int depth) const {
  constexpr int deepest = 16;
  value = numbers.of(value);
  if (auto name = crossingNames.find(value); name != crossingNames.end())
    return Arithmetic{hash_value(name->second), false};
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumRegions() || depth > deepest)
    return std::nullopt;
  llvm::hash_code hash =
      llvm::hash_combine(op->getName().getAsOpaquePointer(), op->getPropertiesAsAttribute().getAsOpaquePointer(),
                         value.getType().getAsOpaquePointer(), cast<OpResult>(value).getResultNumber());
  bool ofStates = true;
  for (Value operand : op->getOperands()) {
    std::optional<Arithmetic> part = arithmeticOf(operand, depth + 1);
    if (!part)
      return std::nullopt;
    hash = llvm::hash_combine(hash, part->hash);
    ofStates &= part->ofStates;
  }
  return Arithmetic{hash, ofStates};
}

/// The value that stands for a scale in this function.
Value LoweredScaleFlow::firstOf(Value value) const {
  if (!scalesByName.empty())
    if (std::optional<Arithmetic> made = arithmeticOf(value))
      if (auto found = scalesByName.find(::nameOf(made->hash, made->ofStates)); found != scalesByName.end())
        return found->second;
  return numbers.of(value);
}

std::optional<std::string> LoweredScaleFlow::nameOfScale(Value scale) const {
  if (auto read = scale.getDefiningOp<train::ReadOp>())
    return ("state " + read.getState()).str();
  for (auto &[name, value] : scalesByName)
    if (value == scale)
      return name.str();
  std::optional<Arithmetic> made = arithmeticOf(scale);
  return made ? std::optional(::nameOf(made->hash, made->ofStates)) : std::nullopt;
}

/// Scales of states are the same on all replicas.
bool LoweredScaleFlow::isOfStates(const ScaleType &type) const {
  return type.isProduct() && llvm::all_of(type.getPowers(), [&](const ScaleType::Power &power) {
           std::optional<std::string> name = nameOfScale(power.first);
           return name && StringRef(*name).starts_with("state");
         });
}

void LoweredScaleFlow::noteResult(Value value, StringRef name) {
  auto lost = unknown.find(value);
  CrossingScales::Known known{of(value), {}, of(value).isScale(), lost == unknown.end() ? nullptr : lost->second};
  if (known.type.isProduct())
    for (auto [scale, exponent] : known.type.getPowers()) {
      if (std::optional<std::string> named = nameOfScale(scale))
        known.powers.emplace_back(*named, exponent);
      else
        known.unknown = scale.getDefiningOp();
    }
  crossing.values.insert_or_assign(name, std::move(known));
}

void LoweredScaleFlow::readArgument(BlockArgument argument, StringRef name) {
  auto found = crossing.values.find(name);
  if (found == crossing.values.end())
    return;
  const CrossingScales::Known &known = found->second;
  ScaleType type = known.type;
  if (type.isProduct()) {
    type = known.powers.empty() ? known.type : ScaleType::unscaled();
    for (const auto &[scale, exponent] : known.powers)
      type = type.times(*ScaleType::of(scalesByName.try_emplace(scale, argument).first->second).power(exponent));
    type = known.isScale ? type : type.withoutPurity();
  }
  if (known.unknown)
    unknown.insert({argument, known.unknown});
  if (!type.isUnscaled() || type.isScaleMaterial())
    types.insert_or_assign(argument, type);
}

// ---- values that are committed and returned

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

/// A result of a function is a number of the model, the scale that is reported, or a value of which replicas take the
/// largest: scales do so, and largest magnitudes of gradients, which are for histories alone.
LogicalResult LoweredScaleFlow::verifyResult(OpOperand &result) {
  ScaleType type = of(result.get());
  auto isOpaque = [&](const ScaleType::Power &power) { return unknown.contains(power.first); };
  const unsigned index = result.getOperandNumber();
  StringAttr name = crossingName(function.getResultAttrDict(index));
  bool reports = train::resultIs(function, index, train::Role::loss_scale);
  bool agrees = train::resultIs(function, index, train::Role::max);
  if (name && !agrees && scales::carriesScales(result.get())) {
    noteResult(result.get(), name);
    if (train::resultIs(function, index, train::Role::kept) ||
        (isOfStates(type) && llvm::none_of(type.getPowers(), isOpaque)))
      return success();
  }
  bool observed = bool(getResultAttr<check::CheckDialect::ObservedAttrHelper>(function, index));
  if (observed || !scales::carriesScales(result.get()) || type.isUnscaled() || type.isZero() ||
      (agrees && type.isScales()) ||
      ((reports || agrees) && type.isScale() && llvm::none_of(type.getPowers(), isOpaque)))
    return success();
  if (agrees) {
    // Replicas may have scaled it each in its own way. Who reads it decides whether that is all right.
    crossing.values.insert_or_assign(name, CrossingScales::Known{ScaleType::mixed(), {}, false, nullptr});
    return success();
  }
  InFlightDiagnostic diagnostic = result.getOwner()->emitOpError();
  diagnostic << "expected result " << index << " without a scale, got " << type.str();
  explain(diagnostic, result.get());
  return failure();
}

LogicalResult LoweredScaleFlow::verify() {
  Block &body = function.getBody().front();
  for (auto read : body.getOps<train::ReadOp>())
    scalesByName.try_emplace(("state " + read.getState()).str(), read.getValue());
  for (BlockArgument argument : body.getArguments())
    if (StringAttr name = crossingName(function.getArgAttrDict(argument.getArgNumber()))) {
      if (!train::argumentIs(function, argument.getArgNumber(), train::Role::max))
        crossingNames.try_emplace(argument, name);
      readArgument(argument, name);
    }
  infer(body);
  for (OpOperand &result : body.getTerminator()->getOpOperands())
    if (StringAttr name = crossingName(function.getResultAttrDict(result.getOperandNumber()));
        name && !train::resultIs(function, result.getOperandNumber(), train::Role::max))
      crossingNames.try_emplace(numbers.of(result.get()), name);
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
