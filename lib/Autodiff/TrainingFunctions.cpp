// SPDX-License-Identifier: Apache-2.0
// Editing the functions of a training module.
#include "mpt/Autodiff/TrainingFunctions.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;
using namespace mpt;

func::FuncOp mpt::findFunction(ModuleOp module, StringRef name) {
  auto function = module.lookupSymbol<func::FuncOp>(name);
  if (function && llvm::hasSingleElement(function.getBody()))
    return function;
  module.emitError() << "expected a function @" << name << " with one block";
  return nullptr;
}

StringRef mpt::nameOfArgument(func::FuncOp function, unsigned index) {
  auto name = getArgAttr<MPTDialect::NameAttrHelper>(function, index);
  return name ? name.getValue() : StringRef();
}
StringRef mpt::nameOfResult(func::FuncOp function, unsigned index) {
  auto name = getResultAttr<MPTDialect::NameAttrHelper>(function, index);
  return name ? name.getValue() : StringRef();
}

Value mpt::addArgument(func::FuncOp function, StringRef name, Type type) {
  Builder builder(function.getContext());
  unsigned index = function.getNumArguments();
  auto attributes = builder.getDictionaryAttr(namedAttr<MPTDialect::NameAttrHelper>(builder.getStringAttr(name)));
  (void)function.insertArgument(index, type, attributes, NameLoc::get(builder.getStringAttr(name)));
  return function.getArgument(index);
}

void mpt::eraseUnusedArgument(func::FuncOp function, StringRef name) {
  for (unsigned i = function.getNumArguments(); i-- > 0;)
    if (nameOfArgument(function, i) == name && function.getArgument(i).use_empty())
      (void)function.eraseArgument(i);
}

SmallVector<NamedValue> mpt::namedResults(func::FuncOp function) {
  SmallVector<NamedValue> results;
  for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    results.emplace_back(nameOfResult(function, i).str(), value);
  return results;
}

void mpt::setResults(func::FuncOp function, ArrayRef<NamedValue> results) {
  Builder builder(function.getContext());
  SmallVector<Value> values = llvm::map_to_vector(results, [](const NamedValue &result) { return result.second; });
  function.getBody().front().getTerminator()->setOperands(values);
  function.setType(builder.getFunctionType(function.getArgumentTypes(), ValueRange(values).getTypes()));
  SmallVector<Attribute> attributes;
  for (const auto &[name, value] : results)
    attributes.push_back(
        builder.getDictionaryAttr(name.empty() ? ArrayRef<NamedAttribute>()
                                               : namedAttr<MPTDialect::NameAttrHelper>(builder.getStringAttr(name))));
  function.setResAttrsAttr(builder.getArrayAttr(attributes));
}

func::FuncOp mpt::cloneFunction(func::FuncOp function, StringRef name) {
  auto copy = function.clone();
  copy.setName(name);
  function->getBlock()->getOperations().insertAfter(function->getIterator(), copy);
  return copy;
}

train::StateOp mpt::addState(ModuleOp module, train::Role role, StringRef name, RankedTensorType type, double fill,
                             StringRef of) {
  if (module.lookupSymbol(name)) {
    module.emitError() << "expected no symbol @\"" << name << "\", which a new state needs: rename it";
    return nullptr;
  }
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  for (auto state : module.getOps<train::StateOp>())
    builder.setInsertionPointAfter(state);
  Attribute element = isa<FloatType>(type.getElementType())
                          ? Attribute(builder.getFloatAttr(type.getElementType(), fill))
                          : Attribute(builder.getIntegerAttr(type.getElementType(), static_cast<int64_t>(fill)));
  Location loc = NameLoc::get(builder.getStringAttr(name));
  return train::StateOp::create(builder, loc, name, type, role, of.empty() ? StringAttr() : builder.getStringAttr(of),
                                DenseElementsAttr::get(type, element), /*frozen=*/false, /*from=*/StringAttr());
}

Value mpt::readState(func::FuncOp function, StringRef name, Type type) {
  for (auto read : function.getOps<train::ReadOp>())
    if (read.getState() == name)
      return read;
  OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
  return train::ReadOp::create(builder, NameLoc::get(builder.getStringAttr(name)), type, name);
}

void mpt::mergeReads(func::FuncOp function) {
  DenseMap<StringRef, train::ReadOp> first;
  for (auto read : llvm::make_early_inc_range(function.getOps<train::ReadOp>())) {
    auto [it, isNew] = first.try_emplace(read.getState(), read);
    if (!isNew) {
      read.replaceAllUsesWith(it->second.getResult());
      read.erase();
    }
  }
}
