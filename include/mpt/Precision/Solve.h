// SPDX-License-Identifier: Apache-2.0
// Decides which values are narrow: analysis only, nothing is changed.
#ifndef MPT_PRECISION_SOLVE_H
#define MPT_PRECISION_SOLVE_H

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/Policy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// The cost of casts and wide values, in bytes moved.
struct CostModel {
  int64_t launchBytes = 4096; ///< a kernel launch, as the traffic that takes as long
  /// Bytes that a cast between f32 and `narrow` reads and writes.
  int64_t cast(mlir::RankedTensorType wide, mlir::Type narrow) const;
  /// Bytes that a value takes more when it is wide.
  int64_t wideValue(mlir::RankedTensorType wide, mlir::Type narrow) const;
  /// Every tensor counts as one element, and states as nothing, so that no decision depends on extents.
  bool byTensor = false;
};

/// Element types of one op's operands and results; null where they stay as they are.
struct OpTypes {
  llvm::SmallVector<mlir::Type, 4> operands, results;
  mlir::StringAttr rule;
  bool quantized = false; ///< operands are converted to the policy's compute and gradients types
};
struct StateType {
  mlir::Type type;
  llvm::StringRef rule;
};

/// Predictions for the decided types by measurements: errors of the training step's outputs, and times.
struct ByMeasurement {
  std::vector<ErrorBound> bounds;
  std::vector<MeasuredProduct> products;
};

/// Told of each op with a value to decide, in order.
using OpDecided = llvm::function_ref<void(mlir::Operation *op, const OpTypes &types)>;
using StateDecided = llvm::function_ref<void(train::StateOp state, const StateType &type)>;

/// The solver works on a view of the graph (lib/Precision/Solve/GraphView.h), in four steps:
///  1. rules: the demands of the ops' interfaces and the policy on each op by itself;
///  2. flow: a forward analysis of ranges (RangeFlow.h), by which arithmetic behind an op that expands range stays
///  wide;
///  3. labels: each operand and result is narrow, wide, either, or free, with the rule that says so;
///  4. placement: free ones take the types that move the fewest bytes through casts (CastPlacement.h).

/// Decides the types of all functions of a training module together, because they share parameters. Hard rules come
/// from the ops' interfaces (wide operands, one type for all operands). Results of contractions, reductions and
/// composites take either type at no cost, since the rounding is theirs. Under policy auto, ops stay wide until the
/// error of every result and gradient is within the budget (Budget.cpp). With measured products, contractions have
/// 8-bit operands where these are faster (ProductChoice.cpp); fails where the table of times lacks one.
mlir::FailureOr<ByMeasurement> solveModule(mlir::ModuleOp module, const Policy &policy, OpDecided decided,
                                           StateDecided stateDecided, const CostModel &cost = {});

/// Decides the types of all nodes of the graph `main`, of subgraphs too, and returns the bytes that casts will move.
/// Hard rules are the schemas' (values of no narrow type, values of one type), inputs and results of the graph and of
/// subgraphs, which stay as they are, optimizers' (OptimizerRules.h), constants that the narrow type cannot hold, and
/// sums of more elements than it tells apart; then come the policy's rules, and under policy auto the measured ranges.
/// Nodes whose values reach only results of the graph, through no contraction, stay wide: they are the tail of a loss
/// or an optimizer. Decisions on the output of an earlier run under the same policy change nothing.
int64_t solveNodes(mlir::func::FuncOp main, const Policy &policy, OpDecided decided, const CostModel &cost = {});

} // namespace mpt

#endif // MPT_PRECISION_SOLVE_H
