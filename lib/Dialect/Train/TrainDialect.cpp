// SPDX-License-Identifier: Apache-2.0
// Registration and verification of the training dialect.
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/Train/RequestOps.h"
#include "mpt/Dialect/Train/ScaleOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace mpt::train;

#include "mpt/Dialect/Train/TrainDialect.cpp.inc"
#include "mpt/Dialect/Train/TrainEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/Train/TrainAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Train/TrainOps.cpp.inc"
#define GET_OP_CLASSES
#include "mpt/Dialect/Train/ScaleOps.cpp.inc"
#define GET_OP_CLASSES
#include "mpt/Dialect/Train/RequestOps.cpp.inc"

void TrainDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "mpt/Dialect/Train/TrainAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/Train/TrainOps.cpp.inc"
      ,
#define GET_OP_LIST
#include "mpt/Dialect/Train/ScaleOps.cpp.inc"
      ,
#define GET_OP_LIST
#include "mpt/Dialect/Train/RequestOps.cpp.inc"
      >();
}

/// The compiler's names of functions, alone or before a dot, an underscore or a number.
static bool isFunctionName(StringRef name) {
  StringRef word = name.take_while([](char c) { return llvm::isAlpha(c); });
  return llvm::StringSwitch<bool>(word)
      .Cases({"main", "forward", "step", "evaluate", "evaluation", "predict", "gradients"}, true)
      .Cases({"initialize", "initialization", "accumulate", "algorithm", "replica", "between", "shard"}, true)
      .Cases({"combine", "kernel", "kernels"}, true)
      .Default(false);
}

constexpr StringLiteral kTensorMark = "'";

std::string TrainDialect::symbolOf(StringRef name) {
  bool marks = isFunctionName(name) || name.starts_with(kTensorMark);
  return marks ? (kTensorMark + name).str() : name.str();
}

StringRef TrainDialect::tensorName(StringRef symbol) {
  symbol.consume_front(kTensorMark);
  return symbol;
}

LogicalResult TrainDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return mpt::AttributeSet<ScaleAttrHelper, PartAttrHelper>::verify(op, attribute, "operations");
}
LogicalResult TrainDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return mpt::AttributeSet<RoleAttrHelper>::verify(op, attribute, "arguments");
}
LogicalResult TrainDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return mpt::AttributeSet<RoleAttrHelper>::verify(op, attribute, "results");
}

bool mpt::train::argumentIs(FunctionOpInterface function, unsigned index, Role role) {
  return getArgAttr<TrainDialect::RoleAttrHelper>(function, index) == RoleAttr::get(function->getContext(), role);
}
bool mpt::train::resultIs(FunctionOpInterface function, unsigned index, Role role) {
  return getResultAttr<TrainDialect::RoleAttrHelper>(function, index) == RoleAttr::get(function->getContext(), role);
}

LogicalResult StateOp::verify() {
  auto type = cast<RankedTensorType>(getType());
  if (getRole() > Role::accumulator)
    return emitOpError() << "expected a role of states, got '" << stringifyRole(getRole()) << "'";
  if (ElementsAttr value = getValueAttr())
    if (value.getShapedType() != type)
      return emitOpError() << "expected an initial value of type " << type << ", got " << value.getShapedType();
  return success();
}

/// The state that `op` names, checked to have type `type`.
static LogicalResult verifyStateUse(Operation *op, FlatSymbolRefAttr name, Type type, SymbolTableCollection &symbols) {
  auto state = symbols.lookupNearestSymbolFrom<StateOp>(op, name);
  if (!state)
    return op->emitOpError() << "expected a train.state named " << name << ", found none";
  auto expected = cast<RankedTensorType>(state.getType());
  if (auto shard = mpt::getAttr<mpt::dist::DistDialect::ShardAttrHelper>(state))
    expected = expected.clone(shard.getInt());
  if (expected != type)
    return op->emitOpError() << "expected the type of state " << name << ", " << expected << ", got " << type;
  return success();
}

LogicalResult MergeScaleOp::verify() {
  if (getScales().size() != getMaxima().size() || getScales().size() < 2)
    return emitOpError() << "C1: expected as many scales as maxima, at least two, got " << getScales().size() << " and "
                         << getMaxima().size();
  return success();
}

LogicalResult DeriveOp::verify() {
  if (getXs().getTypes() != getGradients().getTypes())
    return emitOpError() << "C1: expected a result of the type of each of " << getXs().size() << " tensors, got "
                         << getNumResults() << " results";
  return success();
}

/// sqrt(2) erfinv(p), by bisection: attributes are read rarely.
static double quantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 200; ++i) {
    double middle = (low + high) / 2;
    (std::erf(middle) < p ? low : high) = middle;
  }
  return std::sqrt(2.0) * (low + high) / 2;
}
double LayerScaleOp::getReach() { return quantile(getUnderflow().convertToDouble()); }
double CastScaleOp::getQuantile() { return quantile(2 * getUnderflow().convertToDouble() - 1); }

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyStateUse(*this, getStateAttr(), getValue().getType(), symbols);
}

LogicalResult WriteOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyStateUse(*this, getStateAttr(), getValue().getType(), symbols);
}
