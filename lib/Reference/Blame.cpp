// SPDX-License-Identifier: Apache-2.0
// Where a step stopped being finite: the first op that made infinities or NaN out of finite operands.
#include "mpt/Reference/Calibrate.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt;

namespace {

void count(const Tensor &tensor, Blame &blame) {
  blame.count = tensor.size();
  for (double x : tensor.reals()) {
    blame.infinities += std::isinf(x);
    blame.nans += std::isnan(x);
  }
}

bool isFinite(const Tensor &tensor) {
  return !tensor.isFloat() || llvm::all_of(tensor.reals(), [](double x) { return std::isfinite(x); });
}

bool hasNaN(const Tensor &tensor) {
  return llvm::any_of(tensor.reals(), [](double x) { return std::isnan(x); });
}

/// The override that keeps nodes in FP32; a node's name is taken literally.
std::string keepLine(ArrayRef<StringRef> nodes) {
  std::string text;
  for (StringRef node : nodes)
    text += (text.empty() ? "" : "|") + llvm::Regex::escape(node);
  return "--keep-f32='" + text + "'";
}

/// The nodes that read `value`, through casts.
SmallVector<StringRef> readersOf(Value value) {
  llvm::SetVector<StringRef> nodes;
  for (Operation *user : value.getUsers()) {
    if (isa<CastOp>(user))
      nodes.insert_range(readersOf(user->getResult(0)));
    else if (StringRef name = nodeName(user->getLoc()); !name.empty())
      nodes.insert(name);
  }
  return nodes.takeVector();
}

/// Watches one call and keeps the first origin.
class Detective : public InterpreterObserver {
public:
  void computed(Operation *op, const InterpreterFrame &frame) override {
    if (isa<train::ScaleLossOp>(op) ||
        llvm::any_of(op->getOperands(), [&](Value operand) { return behindScale.contains(operand.getDefiningOp()); }))
      behindScale.insert(op);
    if (found)
      return;
    for (OpResult result : op->getResults()) {
      const Tensor &value = frame.get(result);
      if (isFinite(value))
        continue;
      // A constant may hold infinities on purpose, as masks do, and so may results computed from it.
      bool readsMeant = op->hasTrait<OpTrait::ConstantLike>() ||
                        llvm::any_of(op->getOperands(), [&](Value operand) { return meant.contains(operand); });
      if (readsMeant && !hasNaN(value)) {
        meant.insert(result);
        continue;
      }
      if (!llvm::all_of(op->getOperands(),
                        [&](Value operand) { return meant.contains(operand) || isFinite(frame.get(operand)); }))
        continue;
      blameResult(op, result, value, frame);
      return;
    }
  }

  std::optional<Blame> found;

private:
  llvm::DenseSet<Value> meant; ///< values whose infinities come from constants

  void blameResult(Operation *op, OpResult result, const Tensor &value, const InterpreterFrame &frame) {
    found.emplace();
    count(value, *found);
    found->node = nodeName(op->getLoc()).str();
    if (auto read = dyn_cast<train::ReadOp>(op)) {
      found->name = read.getState().str();
      found->advice = adviceForState(read, frame);
      return;
    }
    found->op = op->getName().getStringRef().str();
    llvm::raw_string_ostream(found->result) << result.getType();
    found->limit = FloatFormat(cast<FloatType>(value.getElementType())).largest();
    found->largest = largestInFP64(op, result, frame);
    found->advice = adviceForResult(op, result);
  }

  /// Changes that keep `result` finite.
  std::string adviceForResult(Operation *op, OpResult result) {
    bool isNarrow = cast<FloatType>(getElementTypeOrSelf(result)).getWidth() < 32;
    // Differentiation puts the backward pass behind the op that computes the loss.
    auto function = op->getParentOfType<func::FuncOp>();
    Operation *end = op->getBlock()->getTerminator();
    Operation *loss = function.getSymName() == "step" ? end->getOperand(0).getDefiningOp() : nullptr;
    isGradient = behindScale.contains(op) || (loss && loss->isBeforeInBlock(op));
    bool isFixed = !function.getOps<train::UnscaleOp>().empty() && function.getOps<train::UpdateScaleOp>().empty();
    // A cast is there for its readers: they have to stay wide, and so does the node, which may deliver either type.
    SmallVector<StringRef> wide{found->node};
    if (isa<CastOp>(op))
      for (StringRef reader : readersOf(result))
        if (!llvm::is_contained(wide, reader))
          wide.push_back(reader);
    std::string keep = keepLine(wide);
    bool fitsFP64 = std::isfinite(found->largest);
    if (isGradient && isFixed && isNarrow && fitsFP64)
      return "--loss-scale=dynamic which comes down to a scale that fits";
    if (isGradient && isNarrow && fitsFP64)
      return "nothing, if it happens now and then: the scale is lowered; " + keep + " if it goes on";
    if (isNarrow && fitsFP64)
      return keep;
    if (isGradient)
      return "the gradient itself has no bound here: clip with --clip-norm, or lower the learning rate";
    return "the value leaves FP32 as well, so no cast is to blame: look at the inputs, or lower the learning rate";
  }

  /// A narrow copy may have left its type's range although the master is sound.
  static std::string adviceForState(train::ReadOp read, const InterpreterFrame &frame) {
    auto master = frame.state().values.find((read.getState() + ".master").str());
    if (master == frame.state().values.end() || !isFinite(master->second))
      return "the state was not finite before the step: load an earlier checkpoint, or set the parameter again";
    return keepLine(readersOf(read.getValue()));
  }

  /// The result's largest magnitude when this op alone is computed in FP64 from the operands it had.
  static double largestInFP64(Operation *op, OpResult result, const InterpreterFrame &frame) {
    InterpreterFrame exact(frame, EvaluationMode::Oracle);
    if (failed(cast<Interpretable>(op).interpret(exact)))
      return std::numeric_limits<double>::quiet_NaN();
    double largest = 0.0;
    for (double x : exact.get(result).reals())
      largest = std::max(largest, std::isnan(x) ? std::numeric_limits<double>::infinity() : std::fabs(x));
    return largest;
  }

  llvm::DenseSet<Operation *> behindScale;

public:
  bool isGradient = false;
};

/// An input that was not finite when it came in.
std::optional<Blame> blameInput(func::FuncOp function, ArrayRef<Tensor> inputs) {
  for (auto [i, input] : llvm::enumerate(inputs)) {
    if (isFinite(input))
      continue;
    Blame blame;
    count(input, blame);
    blame.name = argumentName(function, i);
    blame.advice = "the batch holds values that are not finite: mend the data";
    return blame;
  }
  return std::nullopt;
}

} // namespace

std::string Blame::message() const {
  std::string text = llvm::formatv("step {0}: ", step);
  if (op.empty())
    text += (node.empty() ? "input '" + name + "'" : "state '" + name + "' read at node '" + node + "'");
  else
    text += llvm::formatv("node '{0}': {1} gave {2} with", node, op, result);
  text += llvm::formatv(" {0} infinities and {1} NaN in {2} values", infinities, nans, count);
  if (std::isfinite(largest) && largest > 0.0)
    text += llvm::formatv("; unrounded it reaches {0:e3}, the type holds {1:e3}", largest, limit);
  if (scale != 1.0)
    text += llvm::formatv("; it carries the loss scale {0}", scale);
  return text + "; try: " + advice;
}

llvm::json::Value Blame::toJSON() const {
  llvm::json::Object object{{"step", step},   {"node", node},    {"op", op},       {"result", result},
                            {"name", name},   {"nans", nans},    {"count", count}, {"infinities", infinities},
                            {"scale", scale}, {"advice", advice}};
  if (std::isfinite(largest))
    object["largest"] = largest;
  if (std::isfinite(limit))
    object["limit"] = limit;
  return object;
}

FailureOr<std::vector<Blame>> mpt::blame(ModuleOp module, ArrayRef<Batch> batches, int64_t steps) {
  func::FuncOp function;
  for (StringRef name : {"step", "evaluate", "forward"})
    if (!function)
      function = module.lookupSymbol<func::FuncOp>(name);
  if (!function)
    return module.emitError() << "expected a function step, evaluate or forward, found none";
  Interpreter interpreter(module);
  if (failed(interpreter.initialize()))
    return failure();
  std::vector<Blame> found;
  int64_t count = steps ? steps : static_cast<int64_t>(batches.size());
  for (int64_t step = 0; step < count; ++step) {
    FailureOr<SmallVector<Tensor>> inputs = bindInputs(function, batches[step % batches.size()], /*rounds=*/true);
    if (failed(inputs))
      return failure();
    Detective detective;
    interpreter.observe(&detective);
    FailureOr<SmallVector<Tensor>> results = interpreter.call(function, *inputs);
    if (failed(results))
      return failure();
    bool skipped = resultNumber(function, *results, train::Role::skipped).value_or(0.0) != 0.0;
    if (!skipped && llvm::all_of(*results, isFinite))
      continue;
    std::optional<Blame> origin = blameInput(function, *inputs);
    if (!origin)
      origin = detective.found;
    if (!origin)
      continue;
    origin->step = step;
    if (detective.isGradient)
      origin->scale = resultNumber(function, *results, train::Role::loss_scale).value_or(1.0);
    found.push_back(std::move(*origin));
  }
  return found;
}
