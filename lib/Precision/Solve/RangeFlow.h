// SPDX-License-Identifier: Apache-2.0
// The forward analysis of the solver: what is known of the range of each value before any type is chosen.
#ifndef MPT_LIB_PRECISION_SOLVE_RANGEFLOW_H
#define MPT_LIB_PRECISION_SOLVE_RANGEFLOW_H

#include "mlir/Analysis/DataFlow/SparseAnalysis.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

class GraphView;

/// An element of the lattice: two flags, each false at the bottom. The join is "or" in both, since one operand suffices
/// to carry a large magnitude or a rounding into a result; the lattice has height 2, so that the analysis ends.
struct RangeFact {
  bool ranged = false;   ///< its magnitude may leave the narrow type's range
  bool narrowed = false; ///< it is computed from values that are narrow anyway

  static RangeFact join(const RangeFact &a, const RangeFact &b) {
    return {a.ranged || b.ranged, a.narrowed || b.narrowed};
  }
  bool operator==(const RangeFact &other) const { return ranged == other.ranged && narrowed == other.narrowed; }
  void print(llvm::raw_ostream &out) const;
};

/// The transfer function of one result: what it makes itself, and which flags of its operands' join it hands on.
/// Monotone whatever the members are. GraphView says which op has which:
///  * a contraction or another op that rules make narrow makes {narrowed}; an op kept wide hands nothing on, and makes
///    {ranged} if it expands range (exponentials, long sums);
///  * what follows its neighbours hands both flags on;
///  * the read of a parameter makes {narrowed}; arguments of loop bodies are {ranged}, for an earlier iteration made
///    them.
struct RangeTransfer {
  RangeFact makes, passes;
  bool measured = false; ///< the range is known to fit: `ranged` is handed on only where `narrowed` is

  RangeFact operator()(RangeFact in) const {
    return {makes.ranged || (passes.ranged && in.ranged && (!measured || in.narrowed)),
            makes.narrowed || (passes.narrowed && in.narrowed)};
  }
  static RangeTransfer none() { return {}; }
  static RangeTransfer identity(bool measured = false) { return {{}, {true, true}, measured}; }
};

/// The fixpoint over one function.
class RangeFlow {
public:
  RangeFlow(mlir::func::FuncOp function, const GraphView &view);
  RangeFact of(mlir::Value value) const;
  /// The join over the operands of `op`.
  RangeFact into(mlir::Operation *op) const;

private:
  mlir::DataFlowSolver solver;
};

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_RANGEFLOW_H
