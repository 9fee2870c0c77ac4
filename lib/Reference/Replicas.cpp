// SPDX-License-Identifier: Apache-2.0
// All replicas of a step at once: op by op, with the collectives between them.
// Matcher: collectives of dialect shard, whose rules these are.
#include "Arguments.h"

#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Reference/Interpreter.h"

#include "llvm/ADT/bit.h"

#include <cmath>
#include <deque>
#include <map>

using namespace mlir;
using namespace mpt;
using dist::DistDialect;

namespace {

bool isSplit(func::FuncOp function, unsigned index) {
  return bool(getArgAttr<DistDialect::SplitAttrHelper>(function, index));
}

bool isFilledIn(func::FuncOp function, unsigned index) {
  return train::argumentIs(function, index, train::Role::replica_number) ||
         train::argumentIs(function, index, train::Role::replica_count);
}

bool sameBits(const Tensor &a, const Tensor &b) {
  for (int64_t i = 0; i < a.size(); ++i)
    if (a.bits(i) != b.bits(i))
      return false;
  return true;
}

class Replicas {
public:
  Replicas(func::FuncOp step, int64_t count, EvaluationMode mode, const EvaluationState &before)
      : step(step), mode(mode), states(count, before) {
    for (auto state : step->getParentOfType<ModuleOp>().getOps<train::StateOp>())
      if (std::optional<int64_t> elements = dist::shardOf(state))
        divided[state.getSymName().str()] = *elements;
    for (auto [number, state] : llvm::enumerate(states)) {
      state.writes.clear();
      for (auto &[name, elements] : divided)
        if (auto whole = state.values.find(name); whole != state.values.end())
          whole->second = pieceOf(before.values.at(name), whole->second.getType().clone({elements}), number);
      frames.emplace_back(mode, state);
    }
  }

  LogicalResult bind(ArrayRef<Tensor> inputs) {
    for (auto [number, frame] : llvm::enumerate(frames)) {
      SmallVector<Tensor> mine;
      for (unsigned i = 0; i < step.getNumArguments(); ++i)
        mine.push_back(inputOf(i, inputs[i], static_cast<int64_t>(number)));
      if (failed(bindArguments(step, mine, frame)))
        return failure();
    }
    return success();
  }

  LogicalResult run() {
    Block &body = step.getBody().front();
    LastReaders readers = lastReadersOf(body);
    for (Operation &op : body.without_terminator()) {
      if (isa_and_nonnull<shard::ShardDialect>(op.getDialect())) {
        if (failed(meet(&op)))
          return failure();
        continue;
      }
      for (InterpreterFrame &frame : frames)
        if (failed(frame.run(op, readers)))
          return failure();
    }
    return success();
  }

  /// The results that all replicas return, and in `after` the states that they wrote.
  FailureOr<SmallVector<Tensor>> finish(EvaluationState &after) {
    after.failedChecks = states.front().failedChecks;
    for (auto &[name, value] : states.front().writes)
      for (EvaluationState &other : states)
        if (!divided.count(name) && !sameBits(value, other.writes[name]))
          return step.emitOpError() << "expected every replica to write the same to state '" << name
                                    << "', got different bits";
    SmallVector<Tensor> results;
    for (auto [i, value] : llvm::enumerate(step.getBody().front().getTerminator()->getOperands())) {
      for (InterpreterFrame &frame : frames)
        if (!sameBits(frames.front().get(value), frame.get(value)))
          return step.emitOpError() << "expected every replica to return the same " << resultName(step, i)
                                    << ", got different bits";
      results.push_back(frames.front().get(value));
    }
    for (auto &[name, value] : states.front().writes) {
      if (!divided.count(name)) {
        after.values[name] = value;
        continue;
      }
      std::vector<Tensor> pieces;
      pieces.reserve(states.size());
      for (EvaluationState &state : states)
        pieces.push_back(state.writes[name]);
      after.values[name] = joined(pieces, after.values[name].getType());
    }
    return results;
  }

private:
  /// Replica `number`'s rows of an input, or the number that the runtime would fill in.
  Tensor inputOf(unsigned index, const Tensor &global, int64_t number) {
    auto type = cast<RankedTensorType>(step.getArgument(index).getType());
    if (isFilledIn(step, index)) {
      Tensor filled(type);
      bool isNumber = train::argumentIs(step, index, train::Role::replica_number);
      filled.setNumber(0, static_cast<double>(isNumber ? number : static_cast<int64_t>(frames.size())));
      return filled;
    }
    if (!isSplit(step, index))
      return global;
    return pieceOf(global, global.getType().clone(type.getShape()), number);
  }

  /// Elements [number n, (number + 1) n) of `whole`, with n the elements of `type`; zeros behind its last one.
  static Tensor pieceOf(const Tensor &whole, RankedTensorType type, int64_t number) {
    Tensor piece(type);
    const int64_t start = number * piece.size();
    for (int64_t i = 0; i < piece.size() && start + i < whole.size(); ++i)
      if (piece.isFloat())
        piece.writeReals()[i] = whole.reals()[start + i];
      else
        piece.writeInts()[i] = whole.ints()[start + i];
    return piece;
  }

  /// The pieces one behind the other, as far as `type` has elements.
  static Tensor joined(ArrayRef<Tensor> pieces, RankedTensorType type) {
    Tensor whole(type);
    for (int64_t i = 0; i < whole.size(); ++i) {
      const Tensor &piece = pieces[i / pieces.front().size()];
      if (whole.isFloat())
        whole.writeReals()[i] = piece.reals()[i % piece.size()];
      else
        whole.writeInts()[i] = piece.ints()[i % piece.size()];
    }
    return whole;
  }

  LogicalResult meet(Operation *op) {
    auto reduce = dyn_cast<shard::AllReduceOp>(op);
    auto scatter = dyn_cast<shard::ReduceScatterOp>(op);
    Value result = op->getResult(0);
    auto type = cast<RankedTensorType>(result.getType()), from = cast<RankedTensorType>(op->getOperand(0).getType());
    SmallVector<Tensor> leaves;
    for (InterpreterFrame &frame : frames)
      leaves.push_back(frame.get(op->getOperand(0)).as(from.clone(type.getElementType())));
    if (reduce || scatter) {
      shard::ReductionKind kind = reduce ? reduce.getReduction() : scatter.getReduction();
      bool isSum = kind == shard::ReductionKind::Sum;
      if (!isSum && kind != shard::ReductionKind::Max)
        return op->emitOpError() << "expected a sum or the largest, got another reduction";
      leaves.assign(1, fold(leaves, isSum));
    }
    const bool gathers = isa<shard::AllGatherOp>(op);
    Tensor whole = gathers ? joined(leaves, type) : leaves.front();
    for (auto [number, frame] : llvm::enumerate(frames))
      frame.set(result, reduce || gathers ? whole : pieceOf(whole, type, static_cast<int64_t>(number)));
    return success();
  }

  /// The reduction in the order that every runtime keeps: a binary tree that splits at the largest power of two below
  /// the number of its leaves, whatever process they are on.
  Tensor fold(ArrayRef<Tensor> leaves, bool isSum) const {
    if (leaves.size() == 1)
      return leaves.front();
    size_t left = llvm::bit_floor(leaves.size() - 1);
    Tensor a = fold(leaves.take_front(left), isSum), b = fold(leaves.drop_front(left), isSum);
    MutableArrayRef<double> values = a.writeReals();
    for (auto [x, y] : llvm::zip_equal(values, b.reals()))
      x = isSum ? x + y : std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
    if (mode == EvaluationMode::Exact)
      a.normalize();
    return a;
  }

  func::FuncOp step;
  EvaluationMode mode;
  std::map<std::string, int64_t> divided; ///< states to the elements of a shard
  std::vector<EvaluationState> states;    ///< copies of tensors share their elements
  std::deque<InterpreterFrame> frames;    ///< frames refer to their state
};

} // namespace

RankedTensorType mpt::globalType(func::FuncOp function, unsigned index, int64_t replicas) {
  auto type = cast<RankedTensorType>(function.getArgument(index).getType());
  if (isFilledIn(function, index))
    return nullptr;
  if (!isSplit(function, index))
    return type;
  SmallVector<int64_t> shape(type.getShape());
  shape.front() *= replicas;
  return type.clone(shape);
}

/// How many replicas the rows of the first split input are for, where the step leaves it open.
static int64_t replicasIn(func::FuncOp step, ArrayRef<Tensor> inputs) {
  for (auto [i, input] : llvm::enumerate(inputs))
    if (isSplit(step, i) && input.rank() > 0)
      return std::max<int64_t>(1, input.shape().front() / globalType(step, i, 1).getDimSize(0));
  return 1;
}

FailureOr<SmallVector<Tensor>> mpt::callReplicas(func::FuncOp step, ArrayRef<Tensor> inputs, EvaluationMode mode,
                                                 EvaluationState &states) {
  std::optional<int64_t> count = dist::replicasOf(step->getParentOfType<ModuleOp>());
  if (!count)
    return step.emitOpError() << "expected a grid of replicas for its collectives, found none";
  if (inputs.size() != step.getNumArguments())
    return step.emitOpError() << "expected " << step.getNumArguments() << " inputs, got " << inputs.size();
  if (*count == dist::kOneAProcess)
    count = replicasIn(step, inputs);
  for (auto [i, input] : llvm::enumerate(inputs))
    if (RankedTensorType type = globalType(step, i, *count); type && input.shape() != type.getShape())
      return step.emitOpError() << "expected " << type << " for input " << argumentName(step, i) << " of " << *count
                                << " replicas, got " << input.getType();
  Replicas replicas(step, *count, mode, states);
  if (failed(replicas.bind(inputs)) || failed(replicas.run()))
    return failure();
  return replicas.finish(states);
}
