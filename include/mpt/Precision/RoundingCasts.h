// SPDX-License-Identifier: Apache-2.0
// Casts in a policy's rounding mode.
#ifndef MPT_PRECISION_ROUNDINGCASTS_H
#define MPT_PRECISION_ROUNDINGCASTS_H

#include "mpt/Precision/Settings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Builds casts that round, counts them on their function (`mpt.lossy_casts`), and gives each stochastic one a stream
/// of its own. Random bits are keyed by (seed, step, stream, element): the state @"mpt.rounding" holds seed and step,
/// every call of a function that writes state moves the step on, and the next free stream stands on the module, or for
/// further sizes on a function of the size.
class RoundingCasts {
public:
  explicit RoundingCasts(mlir::ModuleOp module) : module(module) {}
  /// `x` (f32 where rounding is stochastic) in `element`, at the builder's insertion point.
  mlir::Value cast(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value x, mlir::Type element, RoundingMode mode);

private:
  mlir::Value keyIn(mlir::func::FuncOp function);
  mlir::Operation *counterOf(mlir::func::FuncOp function);
  int64_t nextStream(mlir::func::FuncOp function);

  mlir::ModuleOp module;
  llvm::DenseMap<mlir::Operation *, mlir::Value> keys;
  llvm::DenseMap<mlir::Operation *, mlir::Operation *> counters; ///< the op that holds the next stream, by function
};

} // namespace mpt

#endif // MPT_PRECISION_ROUNDINGCASTS_H
