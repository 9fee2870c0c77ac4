// SPDX-License-Identifier: Apache-2.0
// Looks up values of a module among the measured ones.
#include "mpt/Precision/MeasuredTypes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Precision/Slots.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

MeasuredTypes::MeasuredTypes(ModuleOp module, const Policy &policy) : policy(policy), keys(module) {
  // A dynamic scale goes down until gradients fit.
  if (policy.scaling.multiplies() && (policy.measured()->choosesTypes() || policy.scaling.mode == Scaling::fixed))
    gradientShift = std::ilogb(policy.scaling.init);
}

int MeasuredTypes::shiftOf(const RangeProfile &profile) const { return profile.kind == "gradient" ? gradientShift : 0; }

MeasuredTypes::Choice MeasuredTypes::choose(ArrayRef<Value> values) const {
  Choice choice;
  auto storage = cast<FloatType>(policy.storage);
  Type bf16 = BFloat16Type::get(storage.getContext());
  bool allFitOther = bf16 != storage && policy.measured()->choosesTypes();
  for (Value value : values) {
    const RangeProfile *profile = policy.measured()->of(value, keys);
    if (!profile)
      continue;
    Verdict verdict = policy.measured()->judge(*profile, storage, shiftOf(*profile));
    allFitOther &= policy.measured()->judge(*profile, cast<FloatType>(bf16), shiftOf(*profile)).fits;
    // The first value that does not fit decides; of values that fit, the last one (a result) stands for all.
    if (choice.fits)
      choice.text = std::move(verdict.text);
    choice.fits &= verdict.fits;
  }
  if (!choice.fits && allFitOther) {
    choice.other = bf16;
    choice.text += "; fits bf16";
  }
  return choice;
}

bool MeasuredTypes::knows(Operation *op) const {
  if (!policy.measured()->choosesTypes())
    return false;
  auto known = [&](Value value) { return !isDecidable(value.getType()) || policy.measured()->of(value, keys); };
  return llvm::all_of(op->getOperands(), known) && llvm::all_of(op->getResults(), known);
}

std::string MeasuredTypes::refuseQuantizing(Operation *op, const TrainingParts &parts) const {
  for (Value operand : op->getOperands()) {
    const RangeProfile *profile = isDecidable(operand.getType()) ? policy.measured()->of(operand, keys) : nullptr;
    auto type = cast<FloatType>(parts.isGradient(operand) ? policy.gradients : policy.compute);
    if (!profile || type.getWidth() != 8)
      continue;
    Verdict verdict = policy.tensorScaling.enabled ? policy.measured()->judgeScaled(*profile, type)
                                                   : policy.measured()->judge(*profile, type, shiftOf(*profile));
    if (!verdict.fits)
      return verdict.text;
  }
  return "";
}

double MeasuredTypes::magnitudeOf(Value value) const {
  const RangeProfile *profile = policy.measured()->of(value, keys);
  return profile ? profile->rootMeanSquare() : 0.0;
}

double MeasuredTypes::roundingOf(Value value, Type type) const {
  FloatRange range = FloatRange::of(cast<FloatType>(type));
  const RangeProfile *profile = policy.measured()->of(value, keys);
  if (profile)
    return profile->relativeError(range, shiftOf(*profile));
  RangeProfile normal;
  normal.exponents[0] = 1;
  return normal.relativeError(range);
}

double MeasuredTypes::roundingOfQuantized(Value value, bool isGradient) const {
  auto type = cast<FloatType>(isGradient ? policy.gradients : policy.compute);
  const RangeProfile *profile = policy.measured()->of(value, keys);
  if (!profile || !policy.tensorScaling.enabled)
    return roundingOf(value, type);
  FloatRange range = FloatRange::of(type);
  return profile->relativeError(range, Measurements::ownShift(*profile, range));
}

const RangeProfile *MeasuredNodes::profileOf(Value value) const {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto name = function ? getArgAttr<MPTDialect::NameAttrHelper>(function, argument.getArgNumber()) : StringAttr();
    return name ? policy.measured()->named(("input|" + name.getValue()).str()) : nullptr;
  }
  if (auto initializer = value.getDefiningOp<onnx::InitializerOp>())
    if (const RangeProfile *found = policy.measured()->named(("state|" + initializer.getName()).str()))
      return found;
  return policy.measured()->named(("node|" + nodeName(value.getDefiningOp()->getLoc())).str());
}

MeasuredNodes::Choice MeasuredNodes::choose(Operation *node) const {
  Choice choice;
  if (!policy.measured())
    return choice;
  choice.known = policy.measured()->choosesTypes();
  SmallVector<Value> values(node->getOperands());
  llvm::append_range(values, node->getResults());
  for (Value value : values) {
    if (!onnx::isFloat32Tensor(value.getType()))
      continue;
    const RangeProfile *profile = profileOf(value);
    choice.known &= profile != nullptr;
    if (!profile)
      continue;
    Verdict verdict = policy.measured()->judge(*profile, cast<FloatType>(policy.storage), 0);
    // The first value that does not fit decides; of values that fit, the last one (a result) stands for all.
    if (choice.fits)
      choice.text = std::move(verdict.text);
    choice.fits &= verdict.fits;
  }
  return choice;
}
