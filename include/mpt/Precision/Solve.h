// SPDX-License-Identifier: Apache-2.0
// Decides which values of a module are narrow: analysis only, nothing is changed.
#ifndef MPT_PRECISION_SOLVE_H
#define MPT_PRECISION_SOLVE_H

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/Policy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// True for values that a policy decides about: tensors of FP32 elements. FP64 and values that are narrow already stay.
bool isDecidable(mlir::Type type);
/// True when the op's float results may have another type than its operands.
bool hasFlexibleTypes(mlir::Operation *op);
/// Ops that compute the loss from the model's outputs, and the start of the backward pass.
llvm::DenseSet<mlir::Operation *> lossIsland(mlir::func::FuncOp function);
/// Ops of one type for all slots from which only parameter gradients are made: sums over uses, reshapes, transposes.
llvm::DenseSet<mlir::Operation *> parameterGradientTail(mlir::func::FuncOp function);

/// What casts and wide values cost, in bytes moved.
struct CostModel {
  int64_t launchBytes = 4096; ///< a kernel launch, as the traffic that takes as long
  int64_t cast(mlir::RankedTensorType wide, mlir::Type narrow) const;
  int64_t wideValue(mlir::RankedTensorType wide, mlir::Type narrow) const;
};

/// How what the rules leave free is decided: by a minimum cut, or by four-colour painting (Painting.h).
enum class Placement { cut, painting };

/// Element types of one op's operands and results; null where they stay as they are.
struct OpTypes {
  llvm::SmallVector<mlir::Type, 4> operands, results;
  std::string rule;
  bool quantized = false; ///< operands are converted to the policy's compute and gradients types
};
struct StateType {
  mlir::Type type;
  std::string rule;
};
struct PrecisionSolution {
  llvm::DenseMap<mlir::Operation *, OpTypes> ops;
  llvm::DenseMap<mlir::Operation *, StateType> states;
  int64_t castBytes = 0;  ///< bytes that casts move, with their launches
  int64_t movedBytes = 0; ///< bytes that the casts of training steps move (of all functions, where there is none)
};

/// Hard rules come from the ops' interfaces (wide slots, one type for all operands), then the policy's rules. Range
/// that an expanding op or a wide reduction may have produced flows on to arithmetic behind it, until a contraction or
/// a composite with FP32 internals. What is left free takes the types that move the fewest bytes through casts: a
/// minimum cut over values, where a cast is paid once per value and type. Results of contractions, reductions and
/// composites take either type at no cost, since the rounding is theirs. All functions are decided together, because
/// they share parameters.
///
/// The cut weighs wide values and launches as well as casts. Where its casts move more bytes than those of painting
/// under the same rules, the cut is taken over casts alone; where that moves more as well, painting is taken.
PrecisionSolution solvePrecision(mlir::ModuleOp module, const Policy &policy, Placement placement = Placement::cut,
                                 const CostModel &cost = {});

} // namespace mpt

#endif // MPT_PRECISION_SOLVE_H
