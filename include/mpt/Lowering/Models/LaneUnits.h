// SPDX-License-Identifier: Apache-2.0
// Work that one thread does in order along some dimensions, shared out over the others.
#ifndef MPT_LOWERING_MODELS_LANEUNITS_H
#define MPT_LOWERING_MODELS_LANEUNITS_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

namespace mpt {

/// Places that do not depend on each other: `rows` of them with `lanes` neighbours each. A unit is at most `chunk`
/// neighbouring lanes of one row.
class LaneUnits {
public:
  LaneUnits(int64_t rows, int64_t lanes, int64_t chunk);

  int64_t extent() const; ///< how many units there are
  /// Gives its argument each lane of a unit in turn, in vectors where the unit is wide enough.
  using Lanes = llvm::function_ref<void(llvm::function_ref<void(const IndexExpr &)>)>;
  /// Loops over the units [begin, end): `body` gets a unit's row and its lanes, and may go through these several times.
  void walk(ElementEmitter &e, mlir::Value begin, mlir::Value end,
            llvm::function_ref<void(const IndexExpr &row, Lanes)> body) const;

private:
  int64_t rows, lanes, chunk;
};

} // namespace mpt

#endif // MPT_LOWERING_MODELS_LANEUNITS_H
