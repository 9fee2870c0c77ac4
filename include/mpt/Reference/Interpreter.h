// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: runs a module's functions on tensors and keeps its state from call to call.
#ifndef MPT_REFERENCE_INTERPRETER_H
#define MPT_REFERENCE_INTERPRETER_H

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/Frame.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// Name of a function's argument or result: its `mpt.name` attribute, else "arg<i>" or "out<i>".
std::string argumentName(mlir::func::FuncOp function, unsigned index);
std::string resultName(mlir::func::FuncOp function, unsigned index);

/// The one number in the result of that role; nothing where there is none of one element.
std::optional<double> resultNumber(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> results, train::Role role);

/// The type of an argument as the caller of a step with `replicas` replicas gives it: rows of all replicas one behind
/// the other where it is split; null where the runtime fills it in.
mlir::RankedTensorType globalType(mlir::func::FuncOp function, unsigned index, int64_t replicas);

/// Executes functions of core, train and check ops element by element. Exact mode rounds every value to its IR type;
/// contractions and reductions accumulate in their accumulator type, elements in row-major order of the input. Oracle
/// mode keeps every float in FP64. Errors are reported at the op and returned as failure.
class Interpreter {
public:
  explicit Interpreter(mlir::ModuleOp module, EvaluationMode mode = EvaluationMode::Exact)
      : module(module), mode(mode) {}

  /// Gives every train.state without a value its initial one: `value`; else a master's parameter, or the state that
  /// `from` names; else zeros for optimizer state and accumulators. Others stay unset: reading one is an error.
  llvm::LogicalResult initialize();

  /// Shows every op of the functions called from now on to `seer` (null: nobody), which must outlive the calls.
  void observe(InterpreterObserver *seer) { observer = seer; }

  /// Elementwise ops of modules with ordered sums are computed by `code`, which must outlive the calls.
  void computeBy(ElementCode *code) { states.elements = code; }

  /// Products of 8- and 16-bit operands add up as on `core`, which must outlive the calls.
  void multiplyOn(const TensorCore *core) { states.tensorCore = core; }

  /// Runs `function`; inputs are in argument order and are rounded to their types (not in oracle mode). State writes
  /// take effect when it has returned. Results are in order. A step with collectives runs as all its replicas, on the
  /// inputs of the global step (globalType); nobody observes it.
  llvm::FailureOr<llvm::SmallVector<Tensor>> call(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> inputs);

  /// State tensors by name.
  std::map<std::string, Tensor> &state() { return states.values; }
  int64_t failedChecks() const { return states.failedChecks; }

private:
  mlir::ModuleOp module;
  EvaluationMode mode;
  EvaluationState states;
  InterpreterObserver *observer = nullptr;
};

} // namespace mpt

#endif // MPT_REFERENCE_INTERPRETER_H
