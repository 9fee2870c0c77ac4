// SPDX-License-Identifier: Apache-2.0
// Kernels of scattering ops: serial over the updates, parallel over the dimensions that updates and result share.
#ifndef MPT_LOWERING_MODELS_SCATTER_H
#define MPT_LOWERING_MODELS_SCATTER_H

#include "mpt/Lowering/Models/LaneUnits.h"

#include <functional>

namespace mpt {

/// The common form of the scattering ops. Updates meet the result in the order of their positions, so that sums do not
/// depend on threads.
struct ScatterForm {
  mlir::Value data; ///< start of the result; null for zeros
  mlir::Value updates;
  ScatterKind kind = ScatterKind::add;
  llvm::SmallVector<std::pair<int64_t, int64_t>> shared; ///< result and update dimension
  bool byRows = false;                                   ///< an update's place is the same at all shared positions
  /// Result indices of an update, for the dimensions that are not shared; `at` is the update's index.
  std::function<void(ElementEmitter &, llvm::ArrayRef<IndexExpr> at, llvm::MutableArrayRef<IndexExpr> result)> target;
};
/// The form of the scattering op that makes the only output of `fusion`; nothing where there is none.
std::optional<ScatterForm> scatterForm(FusionOp fusion);

/// The positions that updates and result share: lanes along the last such dimension, rows along the others; one unit
/// where they share none.
LaneUnits scatterUnits(const ScatterForm &form, mlir::Value result, int64_t chunk);
/// Writes units [begin, end) of `result` to `buffer`.
void emitScatter(ElementEmitter &e, const ScatterForm &form, mlir::Value result, mlir::Value buffer, mlir::Value begin,
                 mlir::Value end, const LaneUnits &units);
/// `old` and an update of the same place, in compute type and of one width.
mlir::Value combineUpdates(ElementEmitter &e, const ScatterForm &form, mlir::Value old, mlir::Value update);

} // namespace mpt

#endif // MPT_LOWERING_MODELS_SCATTER_H
