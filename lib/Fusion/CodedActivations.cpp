// SPDX-License-Identifier: Apache-2.0
// Which activations may wait in 8 bits, and their codes.
// Matcher: exponentials, which turn an absolute error into a relative one, and convolutions, whose rows are images.
#include "mpt/Fusion/CodedActivations.h"

#include "OpKinds.h"
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Fusion/Backward.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t fewestElements = 4096; ///< of a tensor whose memory counts
constexpr int64_t shortestRow = 32;      ///< elements of a scale's row: the scale takes four bytes

bool isConv(Operation *op) { return isa_and_nonnull<ConvOp, library::ConvOp>(op); }

/// The axes that share a scale: the last one, or more where that is short. An image of a convolution has one scale.
SmallVector<int64_t> rowAxes(Value value) {
  ArrayRef<int64_t> shape = shapeOf(value);
  int64_t rank = static_cast<int64_t>(shape.size()), first = rank - 1;
  if (rank > 2 && (isConv(value.getDefiningOp()) || llvm::any_of(value.getUsers(), isConv)))
    first = 2;
  int64_t row = 1;
  for (int64_t axis = first; axis < rank; ++axis)
    row *= shape[axis];
  while (row < shortestRow && first > 1)
    row *= shape[--first];
  return first > 0 && row >= shortestRow ? axisRange(first, rank) : SmallVector<int64_t>();
}

bool isWideFloat(Type type) { return type.isF32() || type.isF16() || type.isBF16(); }

/// Values that an exponential reads, through arithmetic element by element. One of a square, as in the derivative of a
/// GELU, is small where the value is large.
DenseSet<Value> readByExponentials(Block &block) {
  DenseSet<Value> found;
  for (Operation &op : llvm::reverse(block)) {
    bool isSquare = isa<MulOp>(op) && op.getOperand(0) == op.getOperand(1);
    bool passes = isViewOp(&op) || (isFusible(&op) && !isReduction(&op) && !isSquare);
    if (isa<ExpOp>(op) || (passes && llvm::any_of(op.getResults(), [&](Value y) { return found.contains(y); })))
      found.insert(op.operand_begin(), op.operand_end());
  }
  return found;
}

/// Values that reach a result of the function through no GEMM: the loss and its terms, whose differences are small
/// beside them. With them the gradients that are made of them before the first GEMM of the backward pass.
DenseSet<Value> aroundLoss(Block &block, const DenseSet<Operation *> &backward, const DenseSet<Value> &activations) {
  DenseSet<Value> found;
  for (Operation &op : llvm::reverse(block))
    if (op.hasTrait<OpTrait::IsTerminator>() ||
        (!backward.contains(&op) && !isLibraryCall(&op) &&
         llvm::any_of(op.getResults(), [&](Value y) { return found.contains(y); })))
      found.insert(op.operand_begin(), op.operand_end());
  for (Operation &op : block)
    if (!isLibraryCall(&op) &&
        llvm::any_of(op.getOperands(), [&](Value x) { return found.contains(x) && activations.contains(x); }))
      found.insert(op.result_begin(), op.result_end());
  return found;
}

/// One function whose backward pass reads codes.
class Coder {
public:
  Coder(func::FuncOp function, const CodedActivations &coded)
      : block(function.getBody().front()), coded(coded), late(backwardOps(function)) {
    addLateOps(block, late);
  }

  CodingResult run() {
    SmallVector<Operation *> readers;
    for (Operation &op : block)
      if (late.contains(&op))
        readers.push_back(&op);
    for (Operation *reader : readers)
      for (OpOperand &operand : reader->getOpOperands())
        if (Value root = rootOf(operand.get()); coded.contains(root) && !late.contains(root.getDefiningOp()))
          operand.set(shown(operand.get(), reader));
    return result;
  }

private:
  struct Codes {
    Value codes, scales;
    SmallVector<int64_t> axes;
  };

  static Value rootOf(Value value) {
    while (isOperandView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    return value;
  }

  /// `value`, a coded one or a view of one, as `reader` gets it back. Ops of one node share it.
  Value shown(Value value, Operation *reader) {
    Value &known = made[{value, Attribute(reader->getLoc())}];
    if (known)
      return known;
    OpBuilder builder(reader);
    Value read;
    if (coded.contains(value)) {
      read = decoded(value, builder, reader->getLoc());
    } else {
      Value source = shown(value.getDefiningOp()->getOperand(0), reader);
      Operation *view = builder.clone(*value.getDefiningOp());
      view->setOperand(0, source);
      read = view->getResult(0);
    }
    return made[{value, Attribute(reader->getLoc())}] = read;
  }

  Value decoded(Value value, OpBuilder &builder, Location loc) {
    const Codes &from = codesOf(value);
    GraphBuilder b(builder, loc);
    Value wide = b.cast(from.codes, builder.getF32Type());
    Value scales = b.broadcastAlong(from.scales, shapeOf(value), from.axes);
    Value product = b.mul(wide, scales), read = b.cast(product, elementOf(value));
    for (Value part : {wide, scales, product, read})
      setAttr<MPTDialect::RecomputedAttrHelper>(part.getDefiningOp());
    return read;
  }

  /// As mpt.encode_blocks makes them of rows: the largest magnitude of a row becomes the format's largest number.
  const Codes &codesOf(Value value) {
    Codes &entry = codes[value];
    if (entry.codes)
      return entry;
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfterValue(value);
    GraphBuilder b(builder, value.getLoc());
    auto type = Float8E4M3FNType::get(value.getContext());
    double largest = llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
    entry.axes = rowAxes(value);
    Value x = b.cast(value, builder.getF32Type());
    Value amax = b.reduce(ReduceKind::max, b.make<AbsOp>(x), entry.axes);
    Value floor = b.make<MaxOp>(amax, b.splatLike(amax, 1e-12));
    entry.scales = b.div(floor, b.splatLike(floor, largest));
    entry.codes = b.cast(b.div(x, b.broadcastAlong(entry.scales, shapeOf(value), entry.axes)), type);
    ++result.values;
    result.saves += bytesOf(value) - bytesOf(entry.codes) - bytesOf(entry.scales);
    return entry;
  }

  Block &block;
  const CodedActivations &coded;
  DenseSet<Operation *> late;
  DenseMap<Value, Codes> codes;
  DenseMap<std::pair<Value, Attribute>, Value> made;
  CodingResult result;
};

} // namespace

CodedActivations::CodedActivations(func::FuncOp function, llvm::function_ref<bool(StringRef)> wants) {
  DenseSet<Operation *> backward = backwardOps(function);
  if (backward.empty())
    return;
  Block &block = function.getBody().front();
  DenseSet<Value> excluded = readByExponentials(block);
  DenseSet<Value> activations = activationsOf(function);
  excluded.insert_range(aroundLoss(block, backward, activations));
  for (Value value : activations) {
    Operation *op = value.getDefiningOp();
    if ((op->getNumResults() == 1 || isConv(op)) && !isViewOp(op) && !isBroadcast(op) &&
        isWideFloat(elementOf(value)) && countOf(value) >= fewestElements && !excluded.contains(value) &&
        wants(nodeName(value.getLoc())) && !rowAxes(value).empty())
      values.insert(value);
  }
}

CodingResult mpt::codeActivations(func::FuncOp function, const CodedActivations &coded) {
  return coded.empty() ? CodingResult{} : Coder(function, coded).run();
}
