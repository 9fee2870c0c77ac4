// SPDX-License-Identifier: Apache-2.0
// Four-colour painting, the placement of casts of TensorFlow's automatic mixed precision, for comparison.
#ifndef MPT_LIB_PRECISION_SOLVE_PAINTING_H
#define MPT_LIB_PRECISION_SOLVE_PAINTING_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <vector>

namespace mpt {

/// One op that takes part. `allow`: narrow by rule. `clear`: exact in any type. Neither, and free: follows others
/// (infer). An op that is neither allowed nor free is wide by rule (deny).
struct PaintVertex {
  bool allow = false, clear = false, isFree = false;
  llvm::SmallVector<unsigned, 2> users; ///< vertices that read its results
};

/// Which vertices become narrow: allowed ones, free ones that lie between allowed ones on paths of free vertices, and
/// clear ones that touch those. Vertices come in topological order. There is no cost model.
std::vector<bool> paint(llvm::ArrayRef<PaintVertex> vertices);

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_PAINTING_H
