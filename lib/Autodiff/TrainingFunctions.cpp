// SPDX-License-Identifier: Apache-2.0
// Editing the functions of a training module.
#include "mpt/Autodiff/TrainingFunctions.h"

#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

#include "llvm/ADT/StringSet.h"

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

static DictionaryAttr attributesOf(MLIRContext *context, StringRef name, std::optional<train::Role> role) {
  SmallVector<NamedAttribute> entries;
  if (!name.empty())
    entries.push_back(namedAttr<MPTDialect::NameAttrHelper>(StringAttr::get(context, name)));
  if (role)
    entries.push_back(namedAttr<train::TrainDialect::RoleAttrHelper>(train::RoleAttr::get(context, *role)));
  return DictionaryAttr::get(context, entries);
}

Value mpt::addArgument(func::FuncOp function, StringRef name, Type type, std::optional<train::Role> role) {
  MLIRContext *context = function.getContext();
  unsigned index = function.getNumArguments();
  (void)function.insertArgument(index, type, attributesOf(context, name, role),
                                NameLoc::get(StringAttr::get(context, name)));
  return function.getArgument(index);
}

void mpt::eraseUnusedArgument(func::FuncOp function, StringRef name) {
  for (unsigned i = function.getNumArguments(); i-- > 0;)
    if (nameOfArgument(function, i) == name && function.getArgument(i).use_empty())
      (void)function.eraseArgument(i);
}

static std::optional<train::Role> roleOfResult(func::FuncOp function, unsigned index) {
  auto role = getResultAttr<train::TrainDialect::RoleAttrHelper>(function, index);
  return role ? std::optional(role.getValue()) : std::nullopt;
}

SmallVector<NamedValue> mpt::namedResults(func::FuncOp function) {
  SmallVector<NamedValue> results;
  for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    results.emplace_back(nameOfResult(function, i).str(), value, roleOfResult(function, i));
  return results;
}

void mpt::setResults(func::FuncOp function, ArrayRef<NamedValue> results) {
  Builder builder(function.getContext());
  SmallVector<Value> values = llvm::map_to_vector(results, [](const NamedValue &result) { return result.value; });
  function.getBody().front().getTerminator()->setOperands(values);
  function.setType(builder.getFunctionType(function.getArgumentTypes(), ValueRange(values).getTypes()));
  SmallVector<Attribute> attributes;
  llvm::StringSet<> names;
  for (const NamedValue &result : results)
    if (result.role)
      names.insert(result.name);
  for (const NamedValue &result : results) {
    std::string name = result.name;
    for (int64_t i = 1; !result.role && !name.empty() && !names.insert(name).second; ++i)
      name = result.name + "_" + std::to_string(i);
    attributes.push_back(attributesOf(function.getContext(), name, result.role));
  }
  function.setResAttrsAttr(builder.getArrayAttr(attributes));
}

void mpt::addResult(func::FuncOp function, train::Role role, Value value) {
  SmallVector<NamedValue> results = namedResults(function);
  results.emplace_back(role, value);
  setResults(function, results);
}

func::FuncOp mpt::cloneFunction(func::FuncOp function, StringRef name) {
  auto copy = function.clone();
  copy.setName(name);
  function->getBlock()->getOperations().insertAfter(function->getIterator(), copy);
  return copy;
}

train::StateOp mpt::addState(ModuleOp module, train::Role role, StringRef name, RankedTensorType type, double fill,
                             StringRef of) {
  if (Operation *symbol = module.lookupSymbol(name)) {
    auto state = dyn_cast<train::StateOp>(symbol);
    if (state && state.getRole() == role && state.getType() == type && state.getOf().value_or("") == of)
      return state; // which the file brings
    module.emitError() << "expected no symbol @\"" << name << "\", which a new state needs: rename it [mpt-name-taken]";
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

void mpt::advanceGenerators(func::FuncOp function) {
  Builder attributes(function.getContext());
  DenseMap<Attribute, Attribute> streams; // ops of one stream draw the same numbers, in both passes of a joint graph
  for (auto read : llvm::to_vector(function.getOps<train::ReadOp>())) {
    auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(read, read.getStateAttr());
    if (!state || state.getRole() != train::Role::rng)
      continue;
    for (Operation &op : function.getBody().front())
      if (op.hasAttr("stream") && llvm::is_contained(op.getOperands(), read.getValue()))
        op.setAttr("stream", streams
                                 .try_emplace(op.getAttr("stream"),
                                              attributes.getI64IntegerAttr(static_cast<int64_t>(streams.size())))
                                 .first->second);
    bool written = llvm::any_of(function.getOps<train::WriteOp>(),
                                [&](train::WriteOp write) { return write.getState() == read.getState(); });
    if (written)
      continue;
    OpBuilder builder(function.getBody().front().getTerminator());
    GraphBuilder b(builder, read.getLoc());
    train::WriteOp::create(builder, read.getLoc(), read.getState(), b.add(read, b.indices({0, 1})), Value());
  }
}

FailureOr<int64_t> mpt::makeEvaluationForm(func::FuncOp function, StringRef name) {
  return toEvaluationForm(cloneFunction(function, name));
}

FailureOr<int64_t> mpt::toEvaluationForm(func::FuncOp evaluate) {
  int64_t replaced = 0;
  for (auto write : llvm::make_early_inc_range(evaluate.getOps<train::WriteOp>()))
    write.erase();
  for (Operation &op : llvm::make_early_inc_range(evaluate.getBody().front())) {
    auto form = dyn_cast<EvaluationForm>(op);
    if (!form)
      continue;
    OpBuilder builder(&op);
    auto values = form.evaluationForm(builder);
    if (failed(values))
      return failure();
    if (ValueRange(*values) == ValueRange(op.getResults()))
      continue;
    op.replaceAllUsesWith(*values);
    op.erase();
    ++replaced;
  }
  eraseDeadOps(evaluate);
  return replaced;
}

Value mpt::clipCoefficient(func::FuncOp function, OpBuilder &builder, ArrayRef<train::GradientOp> gradients,
                           double norm) {
  GraphBuilder b(builder, NameLoc::get(builder.getStringAttr("grad_norm")));
  auto type = RankedTensorType::get({}, builder.getF32Type());
  SmallVector<Value> values =
      llvm::map_to_vector(gradients, [](train::GradientOp op) -> Value { return op.getResult(); });
  Value length = train::GlobalNormOp::create(builder, b.loc, type, values);
  addResult(function, train::Role::grad_norm, length);
  Value ratio = b.div(b.splat(type, norm), b.add(length, 1e-6));
  return b.make<MinOp>(ratio, b.splat(type, 1.0));
}

Value mpt::clippedGradient(OpBuilder &builder, train::GradientOp gradient, Value coefficient) {
  GraphBuilder b(builder, gradient.getLoc());
  Value wide = b.widen(gradient.getResult());
  RankedTensorType type = tensorType(wide);
  return b.mul(wide, b.broadcast(b.cast(coefficient, type.getElementType()), type.getShape(), {}));
}
