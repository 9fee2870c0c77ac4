// SPDX-License-Identifier: Apache-2.0
// Registration and verification of the policy dialect.
#include "mpt/Dialect/Policy/PolicyDialect.h"

#include "mpt/Interfaces/NumericClass.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt::policy;

#include "mpt/Dialect/Policy/PolicyDialect.cpp.inc"
#include "mpt/Dialect/Policy/PolicyEnums.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Policy/PolicyOps.cpp.inc"

void PolicyDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/Policy/PolicyOps.cpp.inc"
      >();
}

/// Keys that no rule has would be kept as discardable attributes and have no effect.
static LogicalResult refuseUnknownKeys(Operation *op) {
  if (op->getDiscardableAttrs().empty())
    return success();
  SmallVector<StringRef> known;
  for (StringAttr name : op->getRegisteredInfo()->getAttributeNames())
    known.push_back(name.getValue());
  StringRef unknown = op->getDiscardableAttrs().begin()->getName().getValue();
  return op->emitOpError() << "expected " << llvm::join(known, ", ") << ", got unknown key '" << unknown << "'";
}

static LogicalResult verifyOperand(Operation *op, std::optional<int64_t> operand) {
  if (operand && *operand < 0)
    return op->emitOpError() << "expected the position of an operand, from 0, got " << *operand;
  return success();
}

LogicalResult PolicyOp::verify() {
  if (failed(refuseUnknownKeys(*this)))
    return failure();
  for (Operation &rule : getRules().front())
    if (rule.getDialect() == (*this)->getDialect() && failed(refuseUnknownKeys(&rule)))
      return failure();
  auto isFloat = [](Type type) { return isa<Float16Type, BFloat16Type, Float32Type>(type); };
  if (!isFloat(getStorage()))
    return emitOpError() << "C1: expected f16, bf16 or f32 for storage, got " << getStorage();
  for (Type type : {getCompute(), getGradients()})
    if (type != getStorage() && !isa<Float8E4M3FNType, Float8E5M2Type>(type) &&
        !(type == getGradients() && type.isF32()))
      return emitOpError() << "C1: expected " << getStorage()
                           << " (the storage type), f8E4M3FN or f8E5M2 for compute and gradients, got " << type;
  if (!getAccumulate().isF32())
    return emitOpError() << "C2: expected f32 for accumulate, got " << getAccumulate();
  if (!getMaster().isF32() && getMaster() != getStorage())
    return emitOpError() << "C3: expected f32 or " << getStorage() << " (the storage type) for master, got "
                         << getMaster();
  if (Type type = getSlots().value_or(getAccumulate());
      !isFloat(type) && !type.isSignlessInteger(8) && !isa<Float8E4M3FNType>(type))
    return emitOpError() << "C4: expected f32, f16, bf16, i8 or f8E4M3FN for slots, got " << type;
  if (Type type = getParameterGradients().value_or(getStorage());
      !isFloat(type) && !isa<Float8E4M3FNType, Float8E5M2Type>(type))
    return emitOpError() << "C4: expected an 8-bit float type, f16, bf16 or f32 for parameter_gradients, got " << type;
  if (Type type = getSaved().value_or(getStorage()); type != getStorage()) {
    if (!isa<Float8E4M3FNType, Float8E5M2Type>(type))
      return emitOpError() << "C5: expected " << getStorage()
                           << " (the storage type), f8E4M3FN or f8E5M2 for saved, got " << type;
    if (!getRules().front().getOps<TensorScalingOp>().empty())
      return emitOpError() << "C5: expected no tensor_scaling beside saved = " << type
                           << ", since saved activations have no scales";
  }
  return success();
}

LogicalResult ClassOp::verify() {
  if (!mpt::symbolizeNumericClass(getNumericClass()))
    return emitOpError() << "expected contraction, reduction, range-expanding, neutral or movement, got \""
                         << getNumericClass() << "\"";
  if (getNumericClass() == mpt::stringifyNumericClass(mpt::NumericClass::Pinned))
    return emitOpError() << "expected a class other than pinned, which is wide in every policy";
  return success();
}

LogicalResult OpRuleOp::verify() { return verifyOperand(*this, getOperand()); }

static LogicalResult verifyRegex(Operation *op, StringRef regex) {
  std::string error;
  if (!llvm::Regex(regex).isValid(error))
    return op->emitOpError() << "expected a regular expression, got \"" << regex << "\": " << error;
  return success();
}

LogicalResult NodeOp::verify() {
  return failed(verifyRegex(*this, getRegex())) ? failure() : verifyOperand(*this, getOperand());
}

LogicalResult SavedOp::verify() {
  if (getDecision() != Decision::narrow && getDecision() != Decision::storage)
    return emitOpError() << "C1: expected narrow or storage, got " << stringifyDecision(getDecision());
  return verifyRegex(*this, getRegex());
}

LogicalResult LossScalingOp::verify() {
  double init = getInit().convertToDouble(), min = getMin().convertToDouble(), max = getMax().convertToDouble();
  double growth = getGrowth().convertToDouble(), backoff = getBackoff().convertToDouble();
  if (!(0.0 < min && min <= init && init <= max))
    return emitOpError() << "C1: expected 0 < min <= init <= max, got min " << min << ", init " << init << ", max "
                         << max;
  if (!(growth > 1.0 && 0.0 < backoff && backoff < 1.0) || getInterval() < 1 || getHysteresis() < 1 ||
      getPatience() < 1 || getUpdateInterval() < 1)
    return emitOpError() << "C2: expected growth above 1, backoff between 0 and 1, interval, hysteresis, patience and "
                            "update_interval of at least 1";
  ArrayRef<int64_t> steps = getFloorSteps();
  if (steps.size() != getFloors().size() || !llvm::is_sorted(steps))
    return emitOpError() << "C3: expected as many floors as floor_steps, which ascend, got " << getFloors().size()
                         << " and " << steps.size();
  for (double floor : getFloors())
    if (!(0.0 < floor && floor <= max))
      return emitOpError() << "C3: expected floors above 0 and at most max, " << max << ", got " << floor;
  double underflow = getUnderflow().convertToDouble();
  if ((getSpread() != "sum" && getSpread() != "product") || !(0.0 < underflow && underflow < 1.0) ||
      !(getLayerMax().convertToDouble() > 0.0) || !(getTotalMax().convertToDouble() > 0.0) ||
      !(getHeadroom().convertToDouble() > 0.0))
    return emitOpError()
           << "C4: expected spread \"sum\" or \"product\", underflow between 0 and 1, bounds and headroom above 0";
  if ((getFirst() != "log_normal" && getFirst() != "none") ||
      (getTotalFrom() != "rounding" && getTotalFrom() != "loss"))
    return emitOpError()
           << "C4: expected first \"log_normal\" or \"none\" and total_from \"rounding\" or \"loss\", got \""
           << getFirst() << "\" and \"" << getTotalFrom() << "\"";
  if (getCheck() != "step" && (getCheck() != "parameter" || getMode() == Scaling::none))
    return emitOpError() << "C5: expected check \"step\", or \"parameter\" in a mode that skips steps, got \""
                         << getCheck() << "\" in mode " << stringifyScaling(getMode());
  return success();
}

LogicalResult TensorScalingOp::verify() {
  if (getHistory() < 1 || getMargin() < 0)
    return emitOpError() << "C1: expected a history of at least 1 and a margin that is not negative, got "
                         << getHistory() << " and " << getMargin();
  return success();
}

LogicalResult RoundingOp::verify() {
  if (getMode() != "nearest_even" && getMode() != "stochastic" && getMode() != "compensated")
    return emitOpError() << "expected \"nearest_even\", \"stochastic\" or \"compensated\", got \"" << getMode() << "\"";
  bool isWide = (*this)->getParentOfType<PolicyOp>().getMaster().isF32();
  if (getMode() == "compensated" && (getValues() != Values::masters || isWide))
    return emitOpError() << "expected \"compensated\" of masters that are the storage type, got it of "
                         << stringifyValues(getValues()) << (getValues() == Values::masters ? ", which are f32" : "");
  if (getOverflow() != "inf" && getOverflow() != "saturate")
    return emitOpError() << "expected overflow \"inf\" or \"saturate\", got \"" << getOverflow() << "\"";
  return success();
}
