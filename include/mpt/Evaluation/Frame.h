// SPDX-License-Identifier: Apache-2.0
// The context of an op while it is interpreted: values, state, mode, and how its sums accumulate.
#ifndef MPT_EVALUATION_FRAME_H
#define MPT_EVALUATION_FRAME_H

#include "mpt/Evaluation/Tensor.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <map>
#include <string>

namespace mpt {

enum class EvaluationMode {
  Exact, ///< every result is rounded to its IR type, sums accumulate in their accumulator type
  Oracle ///< floats are computed and kept in FP64, whatever their type; casts between float types do nothing
};

class InterpreterFrame;
class TensorCore;

/// Another way to compute elementwise ops.
class ElementCode {
public:
  virtual ~ElementCode() = default;
  /// Sets `op`'s result; false where the op's own rule serves.
  virtual bool compute(mlir::Operation *op, InterpreterFrame &frame) = 0;
};

/// State tensors by name, and the writes of the running call (they take effect when the function returns).
struct EvaluationState {
  std::map<std::string, Tensor> values;
  std::map<std::string, Tensor> writes;
  /// check ops that did not hold so far.
  int64_t failedChecks = 0;
  /// Sums are computed as in libraries compiled with --batch-invariant: contractions fused step by step, others exact.
  bool orderedSums = false;
  ElementCode *elements = nullptr; ///< then computes elementwise ops
  /// Computes products of 8- and 16-bit operands; null: sums have their accumulator's type.
  const TensorCore *tensorCore = nullptr;
};

/// The last op that reads each value of a block, null for its terminator.
using LastReaders = llvm::DenseMap<mlir::Value, mlir::Operation *>;
/// Regions see nothing from outside, so that all readers are in the block.
LastReaders lastReadersOf(mlir::Block &block);

/// Sees the values of a function while it runs.
class InterpreterObserver {
public:
  virtual ~InterpreterObserver() = default;
  /// As computed(), before it: may give `op`'s results other values.
  virtual void adjust(mlir::Operation *op, InterpreterFrame &frame) {}
  /// `op`, directly in the function's body, has set its results; its operands are still there.
  virtual void computed(mlir::Operation *op, const InterpreterFrame &frame) = 0;
};

/// The values of one region while it runs. A child frame sees its parent's values.
class InterpreterFrame {
public:
  InterpreterFrame(EvaluationMode mode, EvaluationState &state, InterpreterObserver *observer = nullptr)
      : mode(mode), shared(state), observer(observer) {}
  /// A child that computes in `mode`, whatever its parent does.
  InterpreterFrame(const InterpreterFrame &parent, EvaluationMode mode)
      : mode(mode), shared(parent.shared), parent(&parent) {}
  explicit InterpreterFrame(const InterpreterFrame &parent, bool isolated)
      : mode(parent.mode), shared(parent.shared), parent(isolated ? nullptr : &parent) {}

  const Tensor &get(mlir::Value value) const;
  /// Sets `value`, rounding (wrapping, for integers) to its element type; oracle mode keeps floats as they are.
  void set(mlir::Value value, Tensor tensor);
  /// Values that outlive their last use in a block: results of a region without terminator.
  void keep(llvm::ArrayRef<mlir::Value> results) { kept.insert(results.begin(), results.end()); }

  /// Zeros of `value`'s type, to be filled and given to set().
  static Tensor zeros(mlir::Value value) { return Tensor(llvm::cast<mlir::RankedTensorType>(value.getType())); }
  bool isOracle() const { return mode == EvaluationMode::Oracle; }
  bool computed(mlir::Operation *op) { return ordersSums() && shared.elements && shared.elements->compute(op, *this); }
  bool ordersSums() const { return shared.orderedSums && !isOracle(); }
  const TensorCore *tensorCore() const { return isOracle() ? nullptr : shared.tensorCore; }
  EvaluationState &state() const { return shared; }
  /// Type of running sums of elements of `elementType`: as `numerics` says, else FP32 or wider; f64 in oracle mode.
  mlir::FloatType accumulatorType(mlir::Type elementType, NumericsAttr numerics = {}) const;
  /// `tensor` read as numerics' `in` says (rounded to it in exact mode).
  Tensor readAs(const Tensor &tensor, NumericsAttr numerics) const;
  /// Rounds sums to numerics' `out`, if given, before the result's own rounding.
  void deliver(mlir::Value value, Tensor sums, NumericsAttr numerics);

  /// Runs the ops of `block` in order, without its terminator.
  llvm::LogicalResult run(mlir::Block &block);
  /// Runs one op of a block of these last readers.
  llvm::LogicalResult run(mlir::Operation &op, const LastReaders &readers);

private:
  EvaluationMode mode;
  EvaluationState &shared;
  const InterpreterFrame *parent = nullptr;
  InterpreterObserver *observer = nullptr;
  llvm::DenseMap<mlir::Value, Tensor> values;
  llvm::DenseSet<mlir::Value> kept;
};

} // namespace mpt

#endif // MPT_EVALUATION_FRAME_H
