// SPDX-License-Identifier: Apache-2.0
// Cones of arithmetic, and their values at random points.
#include "mpt/Evaluation/SameFunction.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Evaluation/Frame.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Interfaces/Linearity.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/Support/Threading.h"
#include <cmath>
#include <deque>
#include <random>

using namespace mlir;
using namespace mpt;

namespace {
constexpr double magnitudes[] = {1.0, 4.0, 0x1p-8, 0x1p-20};
constexpr double tolerance = 1e-6;

bool isFloatTensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

bool isConstant(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->hasTrait<OpTrait::ConstantLike>();
}

/// `says` becomes true where one of them is not zero.
bool areNear(ArrayRef<double> left, ArrayRef<double> right, bool &says) {
  double largest = 0.0, apart = 0.0;
  for (auto [x, y] : llvm::zip_equal(left, right)) {
    if (!std::isfinite(x) || !std::isfinite(y))
      return false;
    largest = std::max(largest, std::fabs(x));
    apart = std::max(apart, std::fabs(x - y));
  }
  says |= largest > 0.0;
  return apart <= tolerance * largest;
}

/// Moves, extrema and the like, whose pieces must not meet at a number that random points may never reach.
bool hasPiecesAtZero(Operation *op) {
  auto linear = dyn_cast<Linearity>(op);
  if (!linear)
    return false;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    return linear.getOperandScale(operand.getOperandNumber()) != OperandScale::Fixed &&
           (op->getNumOperands() == 1 || !isConstant(operand.get()));
  });
}
} // namespace

bool mpt::isComparable(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || !isa<Interpretable>(op) || isa<Decomposable>(op) || op->getNumRegions() != 0 ||
      op->getNumOperands() == 0 || !isMemoryEffectFree(op) || !llvm::all_of(op->getOperands(), isFloatTensor) ||
      !llvm::all_of(op->getResults(), isFloatTensor))
    return false;
  switch (semantics.getNumericClass()) {
  case NumericClass::Neutral:
  case NumericClass::RangeExpanding:
  case NumericClass::Reduction:
    return true;
  case NumericClass::Movement:
    return hasPiecesAtZero(op);
  case NumericClass::Contraction:
  case NumericClass::Pinned:
    return false;
  }
  return false;
}

Cone::Cone(Value value, const DenseSet<Value> &given, size_t mostOps) {
  DenseSet<Operation *> seen;
  std::deque<Value> work{value};
  while (!work.empty()) {
    Value next = work.front();
    work.pop_front();
    if (given.contains(next))
      continue;
    Operation *op = next.getDefiningOp();
    if (op && seen.contains(op))
      continue;
    if (!op || !(isConstant(next) || (isComparable(op) && ops.size() < mostOps))) {
      leaves.insert(next);
      continue;
    }
    seen.insert(op);
    ops.push_back(op);
    llvm::append_range(work, op->getOperands());
  }
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
}

RandomPoints::RandomPoints(ModuleOp module) {
  uint64_t least = uint64_t(1) << 24, tensors = 0; // bytes
  for (Operation &op : *module.getBody())
    for (NamedAttribute attribute : op.getAttrs())
      if (auto elements = dyn_cast<DenseResourceElementsAttr>(attribute.getValue()))
        if (AsmResourceBlob *blob = elements.getRawHandle().getBlob())
          tensors += blob->getData().size();
  mostHeld = static_cast<int64_t>(std::max(least, tensors) / sizeof(double));
}

void RandomPoints::draw(ArrayRef<Value> drawn) {
  arguments.assign(drawn.begin(), drawn.end());
  known.clear();
  known.insert(drawn.begin(), drawn.end());
}

bool RandomPoints::compute(ArrayRef<Operation *> ops) {
  for (Operation *op : ops) {
    if (known.contains(op->getResult(0)))
      continue;
    if (!isa<Interpretable>(op) ||
        !llvm::all_of(op->getOperands(), [&](Value operand) { return known.contains(operand); }))
      return false;
    known.insert(op->result_begin(), op->result_end());
  }
  return true;
}

FailureOr<SmallVector<Operation *>> RandomPoints::sliceOf(ArrayRef<Value> values) const {
  SmallVector<Value> work(values.begin(), values.end());
  llvm::SmallSetVector<Operation *, 32> slice;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!known.contains(value)) // an operand that has been replaced since
      return failure();
    if (Operation *op = value.getDefiningOp(); !llvm::is_contained(arguments, value) && slice.insert(op))
      llvm::append_range(work, op->getOperands());
  }
  SmallVector<Operation *> ops = slice.takeVector();
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ops;
}

/// The elements that are held at once, at most, while `ops` run.
static int64_t mostHeldBy(ArrayRef<Operation *> ops, ArrayRef<Value> arguments, const LastReaders &readers,
                          const DenseSet<Value> &kept) {
  int64_t held = 0, most = 0;
  auto add = [&](Value value, int64_t sign) { held += sign * tensorType(value).getNumElements(); };
  for (Value argument : arguments)
    add(argument, 1);
  for (Operation *op : ops) {
    for (Value result : op->getResults())
      add(result, 1);
    most = std::max(most, held);
    DenseSet<Value> freed;
    for (Value operand : op->getOperands())
      if (readers.lookup(operand) == op && !kept.contains(operand) && freed.insert(operand).second)
        add(operand, -1);
  }
  return most;
}

/// A key of the ops, their arguments and the compared values: types, attributes, and where each operand comes from.
/// Layers of one kind have the same.
static std::vector<uintptr_t> formOf(ArrayRef<Operation *> ops, ArrayRef<Value> arguments, ArrayRef<Value> compared) {
  std::vector<uintptr_t> form;
  DenseMap<Value, uintptr_t> places;
  auto add = [&](const void *unique) { form.push_back(reinterpret_cast<uintptr_t>(unique)); };
  auto define = [&](Value value) {
    places.try_emplace(value, places.size());
    add(value.getType().getAsOpaquePointer());
  };
  auto refer = [&](Value value) { form.push_back(places.lookup(value)); };
  llvm::for_each(arguments, define);
  for (Operation *op : ops) {
    add(op->getName().getAsOpaquePointer());
    add(op->getPropertiesAsAttribute().getAsOpaquePointer());
    llvm::for_each(op->getOperands(), refer);
    llvm::for_each(op->getResults(), define);
  }
  llvm::for_each(compared, refer);
  return form;
}

bool RandomPoints::agree(Value a, Value b) {
  if (!known.contains(a) || !known.contains(b) || tensorType(a).getNumElements() != tensorType(b).getNumElements())
    return false;
  FailureOr<SmallVector<Operation *>> slice = sliceOf({a, b});
  if (failed(slice))
    return false;
  ArrayRef<Operation *> ops = *slice;
  LastReaders readers;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      readers[operand] = op;
  SmallVector<Value> read;
  llvm::copy_if(arguments, std::back_inserter(read),
                [&](Value value) { return value == a || value == b || readers.contains(value); });
  std::vector<uintptr_t> form = formOf(ops, read, {a, b});
  if (auto found = answers.find(form); found != answers.end())
    return found->second;
  if (mostHeldBy(ops, read, readers, {a, b}) > mostHeld)
    return false;
  std::optional<bool> answer = compare(ops, read, a, b, readers);
  if (answer)
    answers[std::move(form)] = *answer;
  return answer.value_or(false);
}

std::optional<bool> RandomPoints::compare(ArrayRef<Operation *> ops, ArrayRef<Value> read, Value a, Value b,
                                          const LastReaders &readers) {
  int64_t elements = 0;
  for (Operation *op : ops)
    for (Value result : op->getResults())
      elements += tensorType(result).getNumElements();
  // A refusal by a rule is an error of the program at run time, not of the caller.
  ScopedDiagnosticHandler silence(
      a.getContext(), [here = llvm::get_threadid()](Diagnostic &) { return success(llvm::get_threadid() == here); });
  bool says = false;
  std::mt19937_64 generator(1);
  for (double magnitude : magnitudes) {
    budget -= elements;
    if (budget < 0)
      return std::nullopt;
    EvaluationState state;
    InterpreterFrame frame(EvaluationMode::Oracle, state);
    frame.keep({a, b});
    for (Value value : read) {
      Tensor tensor = InterpreterFrame::zeros(value);
      for (double &element : tensor.writeReals())
        element = magnitude * (2.0 * static_cast<double>(generator() >> 11) * 0x1p-53 - 1.0);
      frame.set(value, std::move(tensor));
    }
    if (!llvm::all_of(ops, [&](Operation *op) { return succeeded(frame.run(*op, readers)); }) ||
        !areNear(frame.get(a).reals(), frame.get(b).reals(), says))
      return false;
  }
  return says;
}
