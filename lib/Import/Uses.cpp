// SPDX-License-Identifier: Apache-2.0
// Matcher: nodes of a file, and the values that their subgraphs yield.
// Uses by walks from a tensor to the nodes that read it. Entries of import rules state operands' roles in training.
#include "Uses.h"

#include "mpt/Dialect/ONNX/OperatorClasses.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/ArithmeticWalk.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace mpt;
using onnx::OperandUse;

namespace {
/// Walks from a value to its sources visit at most so many values.
constexpr unsigned kNearNodes = 64;
/// So many scales and biases may be between a layer and another one.
constexpr unsigned kDeepestScale = 3;
} // namespace

static const onnx::OperatorClasses *classesOf(onnx::NodeOp node) {
  return node->getDialect()->getRegisteredInterface<onnx::OperatorClasses>();
}

static Arithmetic arithmeticOf(Operation *op) {
  auto node = dyn_cast_or_null<onnx::NodeOp>(op);
  const onnx::OperatorClasses *classes = node ? classesOf(node) : nullptr;
  return classes ? classes->arithmeticOf(node) : Arithmetic::Unknown;
}

static OperandUse useOf(onnx::NodeOp node, unsigned operand) {
  const onnx::OperatorClasses *classes = classesOf(node);
  return classes ? classes->useOf(node, operand) : OperandUse::Data;
}

/// Values of unknown type are taken for floats: files after optimizers say few types.
static bool isFloat(Value value) { return !isa<IntegerType>(getElementTypeOrSelf(value.getType())); }

static bool joins(onnx::NodeOp node) { return node.getDomain().empty() && node.getOpType() == "Concat"; }

/// True where the result has the values of operand `index` in another place or type.
static bool moves(onnx::NodeOp node, unsigned index) {
  Arithmetic arithmetic = arithmeticOf(node);
  return ((arithmetic == Arithmetic::Moves || arithmetic == Arithmetic::Converts) && index == 0) || joins(node);
}

/// True for the data of a normalization: weights that are standardized before a layer reads them are weights.
static bool normalizes(onnx::NodeOp node, unsigned index) {
  return index == 0 && node->getNumResults() > 0 && arithmeticOf(node) == Arithmetic::Bounds;
}

/// True when `value` is `argument`, perhaps under other names.
static bool isSame(Value value, Value argument) {
  while (auto node = value.getDefiningOp<onnx::NodeOp>()) {
    if (node.getOpType() != "Identity" || node.getInputs().size() != 1)
      return false;
    value = node.getInputs().front();
  }
  return value == argument;
}

/// Where a loop has its operand `index`, or slices of it: as an argument of its body, and as a result where it is
/// carried unchanged. A carried value that changes from step to step is a state, as the first one of a recurrence is,
/// and leads nowhere.
static SmallVector<Value> throughLoop(onnx::NodeOp node, unsigned index) {
  bool loop = node.getOpType() == "Loop", scan = node.getOpType() == "Scan";
  if (!node.getDomain().empty() || !(loop || scan) || node.getBodies().size() != 1)
    return {};
  Block &body = node.getBodies().front().front();
  unsigned operands = node.getInputs().size(), arguments = body.getNumArguments();
  unsigned lengths = operands - std::min(arguments, operands); // Scan-8 has an operand for them, and its body none
  unsigned argument = index - lengths;
  if (index < lengths || argument >= arguments || (loop && argument < 2))
    return {};
  Value inside = body.getArgument(argument);
  auto scanned = node.getAttrs().getAs<IntegerAttr>("num_scan_inputs");
  if (scan && scanned && argument + scanned.getInt() >= arguments)
    return {inside};
  // A loop's body is given a counter and a condition, and yields a condition.
  OperandRange yielded = cast<onnx::YieldOp>(body.getTerminator()).getValues();
  unsigned next = argument - loop, result = argument - 2 * loop;
  if (next >= yielded.size() || result >= node.getNumResults() || !isSame(yielded[next], inside))
    return {};
  return {inside, node.getResult(result)};
}

static bool isInput(Value value);

/// The values that have the elements of `operand`, in another place, type or graph.
static SmallVector<Value> movedTo(OpOperand &operand) {
  if (auto yield = dyn_cast<onnx::YieldOp>(operand.getOwner())) {
    auto node = dyn_cast<onnx::NodeOp>(yield->getParentOp());
    if (!node || node.getOpType() != "If" || operand.getOperandNumber() >= node.getNumResults())
      return {};
    return {node.getResult(operand.getOperandNumber())};
  }
  auto node = dyn_cast<onnx::NodeOp>(operand.getOwner());
  if (!node)
    return {};
  // Numbers beside an input, as in an affine map, are no part of a matrix that trains.
  if (joins(node) && llvm::any_of(node->getOperands(), isInput))
    return {};
  if (moves(node, operand.getOperandNumber()))
    return SmallVector<Value>(node.getResults());
  if (normalizes(node, operand.getOperandNumber()))
    return {node.getResult(0)};
  return throughLoop(node, operand.getOperandNumber());
}

static bool isTensorOfFile(Value value);

/// True for rows of a table that the graph's inputs choose.
static bool looksUp(onnx::NodeOp node) {
  return node->getNumOperands() > 1 && useOf(node, 0) == OperandUse::Weight && moves(node, 0) &&
         isTensorOfFile(node->getOperand(0)) && !isTensorOfFile(node->getOperand(1));
}

/// The source of `value` before it was moved or converted; values that are put beside one another have no one origin.
static Value originOf(Value value) {
  for (auto node = value.getDefiningOp<onnx::NodeOp>();
       node && node->getNumOperands() > 0 && moves(node, 0) && !joins(node) && !looksUp(node);
       node = value.getDefiningOp<onnx::NodeOp>())
    value = node->getOperand(0);
  return value;
}

static bool isTensorOfFile(Value value) {
  Operation *op = originOf(value).getDefiningOp();
  auto node = dyn_cast_or_null<onnx::NodeOp>(op);
  if (node && joins(node))
    return llvm::all_of(node->getOperands(), isTensorOfFile);
  if (node && node->getNumOperands() > 0 && normalizes(node, 0))
    return isTensorOfFile(node->getOperand(0));
  return isa_and_nonnull<train::ReadOp>(op) || (op && op->hasTrait<OpTrait::ConstantLike>()) ||
         (node && node.getDomain().empty() && node.getOpType() == "Constant");
}

static bool isInput(Value value) {
  auto argument = dyn_cast<BlockArgument>(originOf(value));
  return argument && isFloat(value) && !isa<onnx::NodeOp>(argument.getOwner()->getParentOp());
}

/// True for factors of order one, as a sigmoid makes them.
static bool isGate(Value value) { return arithmeticOf(originOf(value).getDefiningOp()) == Arithmetic::Saturates; }

/// True for one over a root, as norms multiply by.
static bool isInverseRoot(Value value) {
  auto node = originOf(value).getDefiningOp<onnx::NodeOp>();
  Arithmetic arithmetic = arithmeticOf(node);
  if (arithmetic != Arithmetic::Inverts && arithmetic != Arithmetic::Divides)
    return false;
  Value root = node->getOperand(arithmetic == Arithmetic::Divides);
  return arithmeticOf(originOf(root).getDefiningOp()) == Arithmetic::Roots &&
         (arithmetic == Arithmetic::Inverts || isTensorOfFile(node->getOperand(0)));
}

static bool isExponential(onnx::NodeOp node) {
  return arithmeticOf(node) == Arithmetic::Expands && node->getNumOperands() == 1;
}

/// True for exp(t) of a tensor t of the file, perhaps negated.
static bool isExponentialOfTensor(Value value) {
  auto node = originOf(value).getDefiningOp<onnx::NodeOp>();
  while (node && arithmeticOf(node) == Arithmetic::Negates)
    node = originOf(node->getOperand(0)).getDefiningOp<onnx::NodeOp>();
  return node && isExponential(node) && isTensorOfFile(node->getOperand(0));
}

/// True for functions of a constant that nobody would write of a formula's numbers: sigmoids of gates, and exponentials
/// of clamped temperatures. Exponentials alone are of frequencies too, and clamps alone of norms.
static bool makesFactor(onnx::NodeOp node) {
  Arithmetic arithmetic = arithmeticOf(node);
  auto expands = [](Operation *user) { return arithmeticOf(user) == Arithmetic::Expands; };
  return arithmetic == Arithmetic::Saturates || arithmetic == Arithmetic::Grows ||
         (arithmetic == Arithmetic::Clamps && !node->use_empty() && llvm::all_of(node->getUsers(), expands));
}

/// True for the result of a layer: a product with weights, rows of a table, or something that was divided by a root,
/// with the scales and biases on it; and for results of layers without weights on it: pools, and differences of two
/// (PoolFormer's token mixer is the pool of a normalization less this one), rectified, summed or gated.
static bool isMadeByLayer(Value value, unsigned depth = 0) {
  auto node = originOf(value).getDefiningOp<onnx::NodeOp>();
  if (!node || depth > kDeepestScale)
    return false;
  auto isMade = [&](Value operand) { return isMadeByLayer(operand, depth + 1); };
  if (joins(node))
    return llvm::any_of(node->getOperands(), isMade);
  for (OpOperand &operand : node->getOpOperands())
    if (useOf(node, operand.getOperandNumber()) == OperandUse::Weight && isTensorOfFile(operand.get()))
      return true;
  switch (arithmeticOf(node)) {
  case Arithmetic::Divides:
    return arithmeticOf(originOf(node->getOperand(1)).getDefiningOp()) == Arithmetic::Roots;
  case Arithmetic::Averages:
    return isMadeByLayer(node->getOperand(0), depth);
  case Arithmetic::Clamps:
  case Arithmetic::Grows:
    return isMade(node->getOperand(0));
  case Arithmetic::Subtracts:
    return llvm::all_of(node->getOperands(), isMade);
  case Arithmetic::Multiplies:
    if (llvm::any_of(node->getOperands(), isInverseRoot) || llvm::any_of(node->getOperands(), isExponentialOfTensor))
      return true;
    [[fallthrough]];
  case Arithmetic::Adds:
    return llvm::any_of(node->getOperands(), isTensorOfFile)
               ? llvm::any_of(node->getOperands(), isMade)
               : llvm::any_of(node->getOperands(), isMade) && llvm::all_of(node->getOperands(), [&](Value operand) {
                   return isMade(operand) || isGate(operand);
                 });
  default:
    return false;
  }
}

/// True for values computed from integers and tensors of the file alone, rows of tables aside: positions.
static bool isMadeOfIntegers(Value start) {
  SmallPtrSet<void *, 16> seen;
  SmallVector<Value> work{start};
  bool any = false;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value.getAsOpaquePointer()).second)
      continue;
    if (!isFloat(value)) {
      any = true;
      continue;
    }
    Operation *op = value.getDefiningOp();
    auto node = dyn_cast_or_null<onnx::NodeOp>(op);
    auto table = node && looksUp(node) ? dyn_cast<RankedTensorType>(node->getOperand(0).getType()) : RankedTensorType();
    if (!op || seen.size() > kNearNodes || (table && table.getRank() > 1))
      return false;
    if (!isa<train::ReadOp>(op))
      llvm::append_range(work, op->getOperands());
  }
  return any;
}

/// True where the exponential, perhaps negated, multiplies a value that is neither a position nor a tensor of the
/// file: the logarithm of a scale. An exponential of frequencies multiplies positions.
static bool scalesData(onnx::NodeOp node) {
  if (!isExponential(node))
    return false;
  SmallVector<Value> work(node->getResults());
  for (size_t i = 0; i < work.size() && i < kNearNodes; ++i)
    for (OpOperand &use : work[i].getUses()) {
      auto user = dyn_cast<onnx::NodeOp>(use.getOwner());
      if (user && (moves(user, use.getOperandNumber()) || arithmeticOf(user) == Arithmetic::Negates))
        llvm::append_range(work, user->getResults());
      if (user && arithmeticOf(user) == Arithmetic::Multiplies)
        for (OpOperand &other : user->getOpOperands())
          if (&other != &use && isFloat(other.get()) && !isTensorOfFile(other.get()) && !isMadeOfIntegers(other.get()))
            return true;
    }
  return false;
}

/// True where the sine or cosine of the result of `node` is taken, with nothing but sums and products between.
static bool endsInAngle(onnx::NodeOp node) {
  return endsIn(node, arithmeticOf, [](Arithmetic a) { return a == Arithmetic::Waves ? End::All : End::None; });
}

/// Notes the use of a tensor, or of its moved elements, as `operand` of `node`.
static void note(TensorUse &use, onnx::NodeOp node, OpOperand &operand) {
  unsigned index = operand.getOperandNumber();
  StringRef opType = node.getOpType();
  use.statistic |= llvm::is_contained({"BatchNormalization", "BatchNormInternal"}, opType) && index >= 3;
  use.classes |= index == 2 && llvm::is_contained({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}, opType);
  use.quantizes |= index > 0 && llvm::is_contained({"QuantizeLinear", "DequantizeLinear"}, opType);
  use.initialState |= arithmeticOf(node) == Arithmetic::Contracts && index >= 5 && node->getNumOperands() > 5;
  OperandUse kind = useOf(node, index);
  if (kind == OperandUse::Data) {
    if (!moves(node, index) && node.getBodies().empty())
      use.reader = opType;
    use.function |= index == 0 && makesFactor(node);
    use.logarithm |= index == 0 && scalesData(node);
    // A token that is put beside the result of a layer.
    use.token |= node->getNumOperands() > 1 && moves(node, node->getNumOperands() - 1) &&
                 llvm::any_of(node->getOperands(), [](Value other) { return isMadeByLayer(other); });
    return;
  }
  Value other;
  for (OpOperand &beside : node->getOpOperands())
    if (&beside != &operand && isFloat(beside.get()) && !isTensorOfFile(beside.get()))
      other = beside.get();
  if (other && (isMadeOfIntegers(other) || (kind == OperandUse::Either && isInput(other))) && endsInAngle(node)) {
    use.angle = true;
    return;
  }
  if (kind == OperandUse::Weight) {
    use.weight = true;
    return;
  }
  auto type = dyn_cast<RankedTensorType>(operand.get().getType());
  bool adds = arithmeticOf(node) == Arithmetic::Adds;
  bool isOne = type && type.hasStaticShape() && type.getNumElements() <= 1;
  bool several = type && type.getRank() >= 1 && (adds || !isOne);
  use.beside |= several && other && isMadeByLayer(other);
  bool shifts = index == 1 && llvm::is_contained({Arithmetic::Subtracts, Arithmetic::Divides}, arithmeticOf(node));
  auto shifted = other ? originOf(other).getDefiningOp<onnx::NodeOp>() : onnx::NodeOp();
  bool isShifted = shifted && arithmeticOf(shifted) == Arithmetic::Subtracts && isInput(shifted->getOperand(0));
  use.standardizes |= shifts && other && (isInput(other) || isShifted);
  use.either = true;
}

TensorUse mpt::usesOf(Value start) {
  TensorUse use;
  SmallPtrSet<void *, 8> seen{start.getAsOpaquePointer()};
  SmallVector<Value> work{start};
  while (!work.empty())
    for (OpOperand &operand : work.pop_back_val().getUses()) {
      for (Value value : movedTo(operand))
        if (seen.insert(value.getAsOpaquePointer()).second)
          work.push_back(value);
      if (auto node = dyn_cast<onnx::NodeOp>(operand.getOwner()))
        note(use, node, operand);
    }
  return use;
}

bool mpt::isReadForStatistics(Value start) {
  SmallPtrSet<Operation *, 16> seen;
  SmallVector<Value> work{start};
  while (!work.empty())
    for (OpOperand &operand : work.pop_back_val().getUses()) {
      auto node = dyn_cast<onnx::NodeOp>(operand.getOwner());
      if (!node || seen.size() > kNearNodes)
        return false;
      bool ends = node.getOpType() == "BatchNormalization" && operand.getOperandNumber() >= 3;
      if (!ends && seen.insert(node).second)
        llvm::append_range(work, node.getResults());
    }
  return true;
}
