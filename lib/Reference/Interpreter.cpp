// SPDX-License-Identifier: Apache-2.0
// Calls and state of the reference interpreter.
#include "mpt/Reference/Interpreter.h"

#include "Arguments.h"

#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Distribution/Replicas.h"

#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace mpt;

static std::string nameOr(Attribute name, StringRef prefix, unsigned index) {
  if (auto text = dyn_cast_or_null<StringAttr>(name))
    return text.str();
  return (prefix + Twine(index)).str();
}

std::string mpt::argumentName(func::FuncOp function, unsigned index) {
  return nameOr(getArgAttr<MPTDialect::NameAttrHelper>(function, index), "arg", index);
}

std::string mpt::resultName(func::FuncOp function, unsigned index) {
  return nameOr(getResultAttr<MPTDialect::NameAttrHelper>(function, index), "out", index);
}

std::optional<double> mpt::resultNumber(func::FuncOp function, ArrayRef<Tensor> results, train::Role role) {
  for (auto [i, result] : llvm::enumerate(results))
    if (result.size() == 1 && train::resultIs(function, i, role))
      return result.number(0);
  return std::nullopt;
}

/// Name of the state that `state` starts as, or empty.
static std::string originOf(train::StateOp state) {
  if (state.getFrom())
    return state.getFrom()->str();
  return state.getRole() == train::Role::master && state.getOf() ? state.getOf()->str() : std::string();
}

LogicalResult Interpreter::initialize() {
  states.orderedSums = hasOrderedSums(module);
  // States given a value, from the module or outside, come first: others start as them.
  for (auto state : module.getOps<train::StateOp>()) {
    std::string name = state.getSymName().str();
    if (states.values.count(name) || !state.getValueAttr())
      continue;
    FailureOr<Tensor> value = Tensor::fromAttribute(state.getValueAttr(), state.getLoc());
    if (failed(value))
      return failure();
    states.values[name] = std::move(*value);
  }
  for (auto state : module.getOps<train::StateOp>()) {
    std::string name = state.getSymName().str(), origin = originOf(state);
    auto type = cast<RankedTensorType>(state.getType());
    if (states.values.count(name))
      continue;
    auto source = states.values.find(origin);
    if (source != states.values.end())
      states.values[name] = source->second.as(type, /*rounds=*/mode == EvaluationMode::Exact);
    else if (state.getRole() == train::Role::slot || state.getRole() == train::Role::accumulator)
      states.values[name] = Tensor(type);
  }
  return success();
}

/// Every element of a box of `values` lies in one of the ranges.
static LogicalResult checkIndices(func::FuncOp function, unsigned argument, const Tensor &values,
                                  rt::IndexCheckAttr check) {
  ArrayRef<int64_t> shape = check.getShape(), strides = check.getStrides(), ranges = check.getRanges();
  SmallVector<int64_t> at(shape.size(), 0);
  for (int64_t count = llvm::product_of(shape); count > 0; --count) {
    int64_t position = check.getOffset();
    for (auto [i, stride] : llvm::zip_equal(at, strides))
      position += i * stride;
    double value = std::trunc(values.number(position));
    bool legal = false;
    for (size_t r = 0; r < ranges.size(); r += 2)
      legal |= double(ranges[r]) <= value && value <= double(ranges[r + 1]);
    if (!legal) {
      InFlightDiagnostic error = function.emitOpError() << "expected ";
      for (size_t r = 0; r < ranges.size(); r += 2)
        error << (r ? " or " : "") << ranges[r] << " to " << ranges[r + 1];
      return error << " for node '" << check.getNode().getValue() << "', got " << llvm::formatv("{0:f0}", value).str()
                   << " in input '" << argumentName(function, argument) << "'";
    }
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];)
      at[d] = 0;
  }
  return success();
}

LogicalResult mpt::bindArguments(func::FuncOp function, ArrayRef<Tensor> inputs, InterpreterFrame &frame) {
  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    auto type = cast<RankedTensorType>(argument.getType());
    if (inputs[i].shape() != type.getShape() || inputs[i].isFloat() != isa<FloatType>(type.getElementType()))
      return function.emitOpError() << "expected " << type << " for input " << argumentName(function, i) << ", got "
                                    << inputs[i].getType();
    if (ArrayAttr checks = getArgAttr<rt::RTDialect::IndicesAttrHelper>(function, i))
      for (auto check : checks.getAsRange<rt::IndexCheckAttr>())
        if (failed(checkIndices(function, i, inputs[i], check)))
          return failure();
    frame.set(argument, inputs[i]);
  }
  return success();
}

FailureOr<SmallVector<Tensor>> Interpreter::call(func::FuncOp function, ArrayRef<Tensor> inputs) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return function.emitOpError() << "expected a body of one block";
  if (dist::hasCollectives(function))
    return callReplicas(function, inputs, mode, states);
  if (inputs.size() != function.getNumArguments())
    return function.emitOpError() << "expected " << function.getNumArguments() << " inputs, got " << inputs.size();
  Block &body = function.getBody().front();
  InterpreterFrame frame(mode, states, observer);
  if (failed(bindArguments(function, inputs, frame)))
    return failure();
  states.writes.clear();
  if (failed(frame.run(body)))
    return failure();
  SmallVector<Tensor> results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(frame.get(value));
  for (auto &[name, value] : states.writes)
    states.values[name] = value;
  states.writes.clear();
  return results;
}
