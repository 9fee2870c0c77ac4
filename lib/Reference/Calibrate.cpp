// SPDX-License-Identifier: Apache-2.0
// Batches of inputs, and the ranges that a step's values take on them.
#include "mpt/Reference/Calibrate.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Support/SafeTensors.h"

using namespace mlir;
using namespace mpt;

FailureOr<std::vector<Batch>> mpt::readBatches(ModuleOp module, ArrayRef<std::string> paths) {
  std::vector<Batch> batches;
  for (StringRef path : paths) {
    auto file = SafeTensorsFile::open(path, module.getContext());
    if (!file)
      return module.emitError() << llvm::toString(file.takeError());
    Batch &batch = batches.emplace_back();
    for (const auto &[name, entry] : file->tensors())
      batch[name] = Tensor::fromBytes(entry.type, entry.bytes);
  }
  return batches;
}

FailureOr<SmallVector<Tensor>> mpt::bindInputs(func::FuncOp function, const Batch &batch, bool rounds) {
  SmallVector<Tensor> inputs;
  for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
    std::string name = argumentName(function, i);
    auto type = cast<RankedTensorType>(argument.getType());
    auto found = batch.find(name);
    if (found == batch.end()) {
      auto byDefault = getArgAttr<MPTDialect::DefaultAttrHelper>(function, i);
      if (!byDefault)
        return function.emitOpError() << "expected input '" << name << "' of type " << type
                                      << " in the batch, got none";
      Tensor value(type);
      value.setNumber(0, byDefault.getValueAsDouble());
      inputs.push_back(std::move(value));
      continue;
    }
    const Tensor &given = found->second;
    if (given.shape() != type.getShape() || given.isFloat() != isa<FloatType>(type.getElementType()))
      return function.emitOpError() << "expected " << type << " for input '" << name << "', got " << given.getType();
    inputs.push_back(given.as(type, rounds));
  }
  return inputs;
}

namespace {

/// Gathers a profile a value. Weights are gathered where they are read, under the name of their parameter.
class Calibration : public InterpreterObserver {
public:
  Calibration(ModuleOp module, bool byNode) : keys(module), byNode(byNode) {}

  void computed(Operation *op, const InterpreterFrame &frame) override {
    StringRef kind = kindOf(op);
    for (OpResult result : op->getResults()) {
      std::string key = keys.of(result);
      if (auto read = dyn_cast<train::ReadOp>(op); read && !key.empty())
        key = ("state|" + read.getState()).str();
      else if (byNode && !key.empty())
        key = leavesNode(result) ? ("node|" + nodeName(op->getLoc())).str() : "";
      if (key.empty())
        continue;
      add(key, kind, frame.get(result));
    }
  }

  void addInputs(func::FuncOp function, ArrayRef<Tensor> inputs) {
    for (auto [i, input] : llvm::enumerate(inputs))
      if (input.isFloat())
        add("input|" + argumentName(function, i), "input", input);
  }

  RangeProfiles profiles;

private:
  /// Read by another node, or a result of the graph.
  static bool leavesNode(OpResult value) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) {
      return user->hasTrait<OpTrait::IsTerminator>() ||
             nodeName(user->getLoc()) != nodeName(value.getOwner()->getLoc());
    });
  }

  void add(const std::string &key, StringRef kind, const Tensor &value) {
    RangeProfile &profile = profiles.values[key];
    if (profile.kind.empty()) {
      profile.kind = kind.str();
      llvm::raw_string_ostream(profile.type) << value.getElementType();
    }
    for (double x : value.reals())
      profile.add(x);
  }

  /// The kind of an op's results. Differentiation puts the backward pass behind the op that computes the loss; ops that
  /// use a parameter's gradient belong to the update.
  StringRef kindOf(Operation *op) {
    auto [entry, isNew] = kinds.try_emplace(op, "activation");
    if (!isNew)
      return entry->second;
    if (auto read = dyn_cast<train::ReadOp>(op)) {
      auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(op, read.getStateAttr());
      return entry->second = state && state.getRole() == train::Role::parameter ? "weight" : "state";
    }
    bool updates = llvm::any_of(op->getOperands(), [&](Value operand) {
      Operation *from = operand.getDefiningOp();
      return from && (isa<train::GradientOp>(from) || kinds.lookup(from) == "update");
    });
    if (updates)
      return kinds[op] = "update";
    if (byNode)
      return "activation";
    Operation *loss = op->getBlock()->getTerminator()->getOperand(0).getDefiningOp();
    if (loss && loss->isBeforeInBlock(op) && !op->hasTrait<OpTrait::ConstantLike>())
      return kinds[op] = "gradient";
    return "activation";
  }

  ValueKeys keys;
  bool byNode;
  llvm::DenseMap<Operation *, StringRef> kinds;
};

} // namespace

FailureOr<RangeProfiles> mpt::calibrate(ModuleOp module, ArrayRef<Batch> batches, int64_t steps) {
  auto function = module.lookupSymbol<func::FuncOp>("step"), forward = module.lookupSymbol<func::FuncOp>("forward");
  bool byNode = !function && forward;
  if (byNode)
    function = forward;
  if (!function)
    return module.emitError() << "expected a training step to calibrate, found none; name an optimizer";
  Interpreter interpreter(module);
  if (failed(interpreter.initialize()))
    return failure();
  Calibration calibration(module, byNode);
  interpreter.observe(&calibration);
  calibration.profiles.steps = steps ? steps : static_cast<int64_t>(batches.size());
  for (int64_t step = 0; step < calibration.profiles.steps; ++step) {
    FailureOr<SmallVector<Tensor>> inputs = bindInputs(function, batches[step % batches.size()], /*rounds=*/true);
    if (failed(inputs))
      return failure();
    calibration.addInputs(function, *inputs);
    if (failed(interpreter.call(function, *inputs)))
      return failure();
  }
  return std::move(calibration.profiles);
}
