// SPDX-License-Identifier: Apache-2.0
// The walk from onnx.node ops to core ops: a rule for each node, constant evaluation after each node, removal of dead
// code.
#include "Converter.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/Constants.h"
#include "mpt/Import/Fold.h"
#include "mpt/Import/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;

void Converter::map(Value onnx, Value core) {
  auto type = cast<RankedTensorType>(core.getType());
  bool isEmpty = type.getNumElements() == 0 && !core.getDefiningOp<ConstantOp>();
  values[onnx] =
      isEmpty ? Value(ConstantOp::create(builder, core.getLoc(), DenseElementsAttr::getFromRawBuffer(type, {}))) : core;
}

std::pair<Value, int64_t> Converter::generator(Location loc) {
  if (!key) {
    auto type = RankedTensorType::get({2}, builder.getI64Type());
    if (!module.lookupSymbol(train::TrainDialect::kGenerator)) {
      OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
      auto value = DenseElementsAttr::get(type, ArrayRef<int64_t>{0, 0});
      Location at = NameLoc::get(builder.getStringAttr(train::TrainDialect::kGenerator));
      train::StateOp::create(top, at, builder.getStringAttr(train::TrainDialect::kGenerator), TypeAttr::get(type),
                             train::RoleAttr::get(builder.getContext(), train::Role::rng), StringAttr(), value,
                             UnitAttr(), StringAttr());
    }
    key = train::ReadOp::create(builder, loc, type,
                                FlatSymbolRefAttr::get(builder.getContext(), train::TrainDialect::kGenerator));
  }
  return {key, streams++};
}

Operation *Converter::stateOf(Value core) {
  auto read = core ? core.getDefiningOp<train::ReadOp>() : train::ReadOp();
  return read ? table->lookup(read.getState()) : nullptr;
}

ElementsAttr Converter::initialValue(Value core, Location loc) {
  constexpr size_t mostOps = 64;
  constexpr int64_t mostElements = 1 << 18;
  llvm::SetVector<Operation *> behind;
  SmallVector<train::StateOp> trained;
  SmallVector<Operation *> work{core.getDefiningOp()};
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!op || op->getNumResults() != 1 || behind.size() > mostOps ||
        tensorType(op->getResult(0)).getNumElements() > mostElements)
      return {};
    if (behind.insert(op))
      for (Value operand : op->getOperands())
        work.push_back(operand.getDefiningOp());
  }
  // In the order of the block operands come before their readers.
  SmallVector<Operation *> order = behind.takeVector();
  llvm::sort(order, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  llvm::DenseMap<Operation *, ElementsAttr> values;
  for (Operation *op : order) {
    ElementsAttr &value = values[op];
    if (auto state = dyn_cast_or_null<train::StateOp>(stateOf(op->getResult(0)))) {
      value = state.getRole() == train::Role::parameter || state.getRole() == train::Role::constant
                  ? state.getValueAttr()
                  : ElementsAttr();
      if (state.getRole() == train::Role::parameter && !state.getFrozen())
        trained.push_back(state);
    } else if (!(value = constantOf(op->getResult(0)))) {
      value = evaluateOp(op, llvm::map_to_vector(op->getOperands(), [&](Value operand) {
                           return values.lookup(operand.getDefiningOp());
                         }));
    }
    if (!value)
      return {};
  }
  for (train::StateOp state : trained)
    if (readEarly.insert(state).second)
      emitWarning(loc) << "reads '" << state.getTensorName()
                       << "' as it is before training, since this operand has to be constant; what else reads it "
                          "trains it: --freeze="
                       << state.getTensorName() << " keeps both as they are";
  return values.lookup(core.getDefiningOp());
}

/// Replaces the ops after `before` that fold by constants; they are erased at the end.
void Converter::foldNew(Block *block, Operation *before) {
  llvm::DenseMap<Value, Value> folded;
  Operation *op = before ? before->getNextNode() : (block->empty() ? nullptr : &block->front());
  while (op) {
    Operation *next = op->getNextNode();
    if (ElementsAttr value = hasAttr<MPTDialect::SeedAttrHelper>(op) ? ElementsAttr() : foldToConstant(op)) {
      OpBuilder here(op);
      Value constant = ConstantOp::create(here, op->getLoc(), value);
      op->getResult(0).replaceAllUsesWith(constant);
      folded[op->getResult(0)] = constant;
      graveyard.push_back(op);
      op->remove();
    }
    op = next;
  }
  if (folded.empty())
    return;
  for (Value onnx : touched) {
    if (Value value = folded.lookup(values.lookup(onnx)))
      values[onnx] = value;
    if (auto found = sequences.find(onnx); found != sequences.end())
      for (Value &element : found->second)
        if (Value value = folded.lookup(element))
          element = value;
  }
}

LogicalResult Converter::convertNode(onnx::NodeOp node) {
  Rule rule = RuleTable::get().find(node.getDomain(), node.getOpType(), node.getVersion());
  if (!rule.import)
    return emitError(node.getLoc()) << unsupportedOperator(node.getDomain(), node.getOpType(), node.getVersion());
  Operation *before = body->empty() ? nullptr : &body->back();
  Binder binder(node, *this, builder);
  // Inference has looked at the operands of the standard's operators; operators of other domains take tensors alone.
  for (unsigned i = 0; i < binder.operandCount() && !node.getDomain().empty(); ++i)
    if (failed(binder.checkTensor(i)))
      return failure();
  if (failed(rule(binder)) || failed(binder.checkAllWasRead()))
    return failure();
  touched.assign(node.getResults().begin(), node.getResults().end());
  foldNew(body, before);
  return success();
}

LogicalResult Converter::convertOps(Block &block) {
  for (Operation &op : block.without_terminator()) {
    if (auto node = dyn_cast<onnx::NodeOp>(op)) {
      if (failed(convertNode(node)))
        return failure();
      continue;
    }
    // Besides nodes, a graph has values without operands: constants and states, which are core already, and operands
    // that are absent.
    bool isAbsent = op.getNumResults() == 1 && isa<NoneType>(op.getResult(0).getType());
    if (op.getNumOperands() != 0 || op.getNumResults() != 1 ||
        (isa_and_nonnull<onnx::ONNXDialect>(op.getDialect()) && !isAbsent))
      return op.emitError() << "expected ONNX nodes and constants in @main, got '" << op.getName() << "'";
    if (!isAbsent)
      values[op.getResult(0)] = builder.clone(op)->getResult(0);
  }
  return success();
}

LogicalResult Converter::inlineBlock(Block &block, ValueRange results) {
  if (failed(convertOps(block)))
    return failure();
  auto yield = cast<onnx::YieldOp>(block.getTerminator());
  for (auto [result, value] : llvm::zip(results, yield.getValues())) {
    values[result] = values.lookup(value);
    if (auto found = sequences.find(value); found != sequences.end())
      sequences[result] = SmallVector<Value>(found->second);
  }
  return success();
}

/// Erases dead ops and moves reads to their first use.
void Converter::finish(func::FuncOp forward) {
  clearFolded();
  Block &block = forward.getBody().front();
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
  llvm::DenseMap<std::pair<Attribute, Type>, Value> constants;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    auto constant = dyn_cast<ConstantOp>(op);
    if (!constant || hasAttr<MPTDialect::SeedAttrHelper>(constant))
      continue;
    auto [at, fresh] = constants.try_emplace({constant.getValue(), constant.getType()}, constant.getResult());
    if (!fresh) {
      constant.replaceAllUsesWith(at->second);
      constant.erase();
    }
  }
  // All are found before any moves, which would renumber the block.
  SmallVector<std::pair<train::ReadOp, Operation *>> moves;
  for (auto read : block.getOps<train::ReadOp>()) {
    Operation *first = nullptr;
    for (Operation *user : read->getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    moves.emplace_back(read, first);
  }
  for (auto [read, first] : moves)
    read->moveBefore(first);
}

/// Drops states that no function names, unless an optimizer may go on from them.
void Converter::dropStates() {
  llvm::StringSet<> used;
  module.walk([&](Operation *op) {
    if (auto state = op->getAttrOfType<FlatSymbolRefAttr>("state"))
      used.insert(state.getValue());
    if (auto list = getAttr<MPTDialect::StatisticsAttrHelper>(op))
      for (auto state : list.getAsRange<FlatSymbolRefAttr>())
        used.insert(state.getValue());
  });
  for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>()))
    if (!used.contains(state.getSymName()) && state.getSymName() != train::TrainDialect::kSteps &&
        !(state.getRole() == train::Role::slot && state.getOf()))
      state.erase();
}

/// Files have names alone: in a step, and in the model's own evaluation, these tell metrics.
static DictionaryAttr withRole(DictionaryAttr attributes, Value result) {
  auto name = attributes.getAs<StringAttr>(MPTDialect::NameAttrHelper::getNameStr());
  std::optional<train::Role> role = name ? train::symbolizeRole(name.getValue()) : std::nullopt;
  if (!role || *role < train::Role::loss || *role > train::Role::skipped || tensorType(result).getNumElements() != 1)
    return attributes;
  NamedAttrList all(attributes);
  all.set(train::TrainDialect::RoleAttrHelper::getNameStr(), train::RoleAttr::get(attributes.getContext(), *role));
  return all.getDictionary(attributes.getContext());
}

/// The results of `main`: new values of states are written, the rest are the results of `forward`.
LogicalResult Converter::convertResults(func::FuncOp main, func::FuncOp forward, DictionaryAttr updates) {
  SmallVector<Value> results;
  SmallVector<Attribute> names;
  for (auto [i, value] : llvm::enumerate(main.getBody().front().getTerminator()->getOperands())) {
    Value result = values.lookup(value);
    if (!result)
      return emitError(value.getLoc()) << "expected tensors as graph outputs, got a sequence or an optional value";
    auto name = getResultAttr<MPTDialect::NameAttrHelper>(main, i);
    auto state = updates && name ? updates.getAs<FlatSymbolRefAttr>(name.getValue()) : FlatSymbolRefAttr();
    if (state) {
      auto known = table->lookup<train::StateOp>(state.getValue());
      if (!known || known.getType() != result.getType())
        return emitError(value.getLoc()) << "expected the new value of state '" << state.getValue()
                                         << "' in its type, got " << result.getType();
      // Batch normalizations write their statistics unasked.
      for (auto write : llvm::make_early_inc_range(body->getOps<train::WriteOp>()))
        if (write.getStateAttr() == state)
          write.erase();
      train::WriteOp::create(builder, value.getLoc(), state, result, Value());
      continue;
    }
    results.push_back(result);
    names.push_back(main.getResultAttrDict(i));
    if (names.back() && llvm::is_contained({"step", "evaluate"}, forward.getSymName()))
      names.back() = withRole(cast<DictionaryAttr>(names.back()), result);
  }
  func::ReturnOp::create(builder, main.getLoc(), results);
  forward.setFunctionType(builder.getFunctionType(main.getArgumentTypes(), ValueRange(results).getTypes()));
  if (!names.empty() && llvm::all_of(names, [](Attribute attr) { return attr != nullptr; }))
    forward.setAllResultAttrs(builder.getArrayAttr(names));
  return success();
}

LogicalResult Converter::convertFunction(func::FuncOp main, StringRef name, DictionaryAttr updates) {
  for (BlockArgument argument : main.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    if (!type || !type.hasStaticShape())
      return emitError(argument.getLoc()) << "expected static extents, got " << argument.getType()
                                          << "; bind symbolic dimensions: --bind N=<extent>";
  }
  values.clear();
  sequences.clear();
  quantized.clear();
  key = {};
  streams = 0;
  builder.setInsertionPoint(main);
  auto forward =
      func::FuncOp::create(builder, main.getLoc(), name, builder.getFunctionType(main.getArgumentTypes(), {}));
  body = forward.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  for (auto [from, to] : llvm::zip_equal(main.getArguments(), body->getArguments())) {
    map(from, to);
    to.setLoc(from.getLoc());
  }
  // At once: attributes live as long as the context, and one list of them for each argument is quadratic.
  if (ArrayAttr attributes = main.getArgAttrsAttr())
    forward.setArgAttrsAttr(attributes);
  if (failed(convertOps(main.getBody().front())) || failed(convertResults(main, forward, updates)))
    return failure();
  if (auto given = getAttr<MPTDialect::NameAttrHelper>(main))
    setAttr<MPTDialect::NameAttrHelper>(forward, given);
  main.erase();
  finish(forward);
  return success();
}

LogicalResult Converter::run() {
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main)
    return module.emitError() << "expected func @main of onnx.node ops; import an ONNX file first";
  table.emplace(module);
  // In a training step, some outputs are new values of states.
  auto updates = getAttr<MPTDialect::StepAttrHelper>(module);
  if (failed(convertFunction(main, updates ? "step" : "forward", updates)))
    return failure();
  if (auto evaluation = module.lookupSymbol<func::FuncOp>("evaluation"))
    if (failed(convertFunction(evaluation, "evaluate", {})))
      return failure();
  // Algorithms, and the initialization of state, which their names keep apart.
  for (auto function : llvm::to_vector(module.getOps<func::FuncOp>()))
    if (auto own = getAttr<MPTDialect::StepAttrHelper>(function)) {
      std::string name = function.getSymName() == "initialization" ? "initialize" : function.getSymName().str();
      function.setSymName(name + ".graph");
      if (failed(convertFunction(function, name, own)))
        return failure();
    }
  dropStates();
  removeAttr<onnx::ONNXDialect::ProducerAttrHelper>(module);
  return verify(module);
}

LogicalResult mpt::convertOnnxToCore(ModuleOp module) { return Converter(module).run(); }
