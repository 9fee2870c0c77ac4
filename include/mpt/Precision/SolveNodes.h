// SPDX-License-Identifier: Apache-2.0
// Decides which values of a graph of ONNX nodes are narrow: analysis only, nothing is changed.
#ifndef MPT_PRECISION_SOLVENODES_H
#define MPT_PRECISION_SOLVENODES_H

#include "mpt/Precision/Policy.h"
#include "mpt/Precision/Solve.h"

namespace mpt {

/// Told of each node with a value to decide: the element types of its operands and results (null: as they are) and the
/// rule.
using NodeDecision = llvm::function_ref<void(mlir::Operation *op, llvm::ArrayRef<mlir::Type> operands,
                                             llvm::ArrayRef<mlir::Type> results, mlir::StringAttr rule)>;

/// Decides the types of all nodes of `main`, those of subgraphs too, and returns the bytes that casts will move. Hard
/// rules are the schemas' (slots that allow no narrow type, slots of one type), inputs and results of the graph and of
/// subgraphs, which stay as they are, optimizers' (OptimizerRules.h), constants that the narrow type cannot hold, and
/// sums of more elements than it tells apart; then come the policy's rules, and under policy auto what was measured.
/// Nodes whose values reach nothing but results of the graph, through no contraction, stay wide: they are the tail of a
/// loss or an optimizer. Range that an expanding op or a reduction may have made, or that a loop carries, flows on
/// until a contraction. The cut never moves more bytes through casts than painting would: where its fewer casts are of
/// more bytes, it is taken over bytes alone. Decisions on the output of an earlier run under the same policy change
/// nothing.
int64_t solveNodes(mlir::func::FuncOp main, const Policy &policy, Placement placement, NodeDecision decided,
                   const CostModel &cost = {});

} // namespace mpt

#endif // MPT_PRECISION_SOLVENODES_H
