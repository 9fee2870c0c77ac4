// Registration and verification of the policy dialect.
#include "mpt/Dialect/Policy/PolicyDialect.h"

#include "mpt/Interfaces/NumericClass.h"

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

LogicalResult PolicyOp::verify() {
  auto isFloat = [](Type type) { return isa<Float16Type, BFloat16Type, Float32Type>(type); };
  if (!isFloat(getStorage()) || getCompute() != getStorage() ||
      (getGradients() != getStorage() && !getGradients().isF32()))
    return emitOpError()
           << "C1: expected one of f16, bf16 and f32 for storage and compute, that or f32 for gradients, got "
           << getStorage() << ", " << getCompute() << " and " << getGradients();
  for (Type wide : {getAccumulate(), getMaster()})
    if (!wide.isF32())
      return emitOpError() << "C2: expected f32 for accumulate and master, got " << wide;
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

LogicalResult NodeOp::verify() {
  std::string error;
  if (!llvm::Regex(getRegex()).isValid(error))
    return emitOpError() << "expected a regular expression, got \"" << getRegex() << "\": " << error;
  return success();
}

LogicalResult LossScalingOp::verify() {
  double init = getInit().convertToDouble(), min = getMin().convertToDouble(), max = getMax().convertToDouble();
  double growth = getGrowth().convertToDouble(), backoff = getBackoff().convertToDouble();
  if (!(0.0 < min && min <= init && init <= max))
    return emitOpError() << "C1: expected 0 < min <= init <= max, got min " << min << ", init " << init << ", max "
                         << max;
  if (!(growth > 1.0 && 0.0 < backoff && backoff < 1.0) || getInterval() < 1 || getHysteresis() < 1)
    return emitOpError()
           << "C2: expected growth above 1, backoff between 0 and 1, interval and hysteresis of at least 1";
  return success();
}

LogicalResult RoundingOp::verify() {
  if (getMode() != "nearest_even")
    return emitOpError() << "expected \"nearest_even\", got \"" << getMode() << "\"";
  return success();
}
