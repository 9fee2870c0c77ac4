// SPDX-License-Identifier: Apache-2.0
// The one solver, over any view of a graph.
#ifndef MPT_LIB_PRECISION_SOLVE_SOLVER_H
#define MPT_LIB_PRECISION_SOLVE_SOLVER_H

#include "GraphView.h"

#include "mpt/Precision/Solve.h"

namespace mpt {

/// A graph as a problem of placing casts.
struct Posed {
  CastPlacement placement;
  std::vector<OpLabels> ops; ///< in topological order, function by function
};
/// Rules, flow and labels of all functions of `view`.
Posed pose(GraphView &view);

/// The solution beside the types that `decided` was told of.
struct Solved {
  Labelling narrow;
  int64_t castBytes;
};
Solved solve(GraphView &view, const Policy &policy, OpDecided decided);

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_SOLVER_H
