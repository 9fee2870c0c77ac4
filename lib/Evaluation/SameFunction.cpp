// SPDX-License-Identifier: Apache-2.0
// Cones of arithmetic, and their values at random points.
#include "mpt/Evaluation/SameFunction.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Interfaces/Linearity.h"

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

void RandomPoints::draw(ArrayRef<Value> arguments) {
  frames.clear();
  known.clear();
  state = EvaluationState();
  std::mt19937_64 generator(1);
  for (double magnitude : magnitudes) {
    InterpreterFrame &frame = frames.emplace_back(EvaluationMode::Oracle, state);
    for (Value value : arguments) {
      Tensor tensor = InterpreterFrame::zeros(value);
      for (double &element : tensor.writeReals())
        element = magnitude * (2.0 * static_cast<double>(generator() >> 11) * 0x1p-53 - 1.0);
      frame.set(value, std::move(tensor));
    }
  }
  known.insert(arguments.begin(), arguments.end());
}

bool RandomPoints::compute(ArrayRef<Operation *> ops) {
  for (Operation *op : ops) {
    if (known.contains(op->getResult(0)))
      continue;
    auto rule = dyn_cast<Interpretable>(op);
    if (!rule || !llvm::all_of(op->getOperands(), [&](Value operand) { return known.contains(operand); }))
      return false;
    for (Value value : op->getResults())
      budget -= static_cast<int64_t>(frames.size()) * tensorType(value).getNumElements();
    if (budget < 0)
      return false;
    // What the rule refuses is an error of the program at run time, not of whoever asks here.
    ScopedDiagnosticHandler silence(op->getContext(), [here = llvm::get_threadid()](Diagnostic &) {
      return success(llvm::get_threadid() == here);
    });
    for (InterpreterFrame &frame : frames)
      if (failed(rule.interpret(frame)))
        return false;
    known.insert(op->result_begin(), op->result_end());
  }
  return true;
}

bool RandomPoints::agree(Value a, Value b) const {
  if (!known.contains(a) || !known.contains(b) || tensorType(a).getNumElements() != tensorType(b).getNumElements())
    return false;
  bool says = false;
  for (const InterpreterFrame &frame : frames) {
    ArrayRef<double> left = frame.get(a).reals(), right = frame.get(b).reals();
    double largest = 0.0, apart = 0.0;
    for (auto [x, y] : llvm::zip_equal(left, right)) {
      if (!std::isfinite(x) || !std::isfinite(y))
        return false;
      largest = std::max(largest, std::fabs(x));
      apart = std::max(apart, std::fabs(x - y));
    }
    if (apart > tolerance * largest)
      return false;
    says |= largest > 0.0;
  }
  return says;
}
