// SPDX-License-Identifier: Apache-2.0
// How a call gives a function its inputs; calls of steps with replicas.
#ifndef MPT_LIB_REFERENCE_ARGUMENTS_H
#define MPT_LIB_REFERENCE_ARGUMENTS_H

#include "mpt/Reference/Interpreter.h"

namespace mpt {

/// Sets the arguments of `function` in `frame`, rounded to their types. Fails after an error at the function where an
/// input has another shape or kind, or an index out of its range.
llvm::LogicalResult bindArguments(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> inputs, InterpreterFrame &frame);

/// Runs a step with collectives: all its replicas at once, op by op, which meet at collectives. Inputs are the global
/// step's (globalType); inputs that a runtime fills in are ignored. Fails after an error where two replicas write
/// different bits to a state, or return different ones. Writes go to `states`.
llvm::FailureOr<llvm::SmallVector<Tensor>> callReplicas(mlir::func::FuncOp step, llvm::ArrayRef<Tensor> inputs,
                                                        EvaluationMode mode, EvaluationState &states);

} // namespace mpt

#endif // MPT_LIB_REFERENCE_ARGUMENTS_H
