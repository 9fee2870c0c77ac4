// SPDX-License-Identifier: Apache-2.0
// Factors of layer-wise scales that hold for several steps, as state.
#ifndef MPT_PRECISION_KEPTFACTORS_H
#define MPT_PRECISION_KEPTFACTORS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/ScaleOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace mpt {

/// A function that updates parameters says which factors there are and writes them; others use the factors that it
/// wrote. The state `mpt.scale_steps` counts the steps since they were chosen; where it is 0 they are chosen anew.
class KeptFactors {
public:
  explicit KeptFactors(mlir::ModuleOp module) : module(module) {}

  /// Whether `function` updates parameters: such functions come first.
  bool updates(mlir::func::FuncOp function);
  void begin(mlir::func::FuncOp function);
  /// `fresh` where factors are chosen anew, else the factor that was kept for `site`. All are FP32 scalars.
  mlir::Value keep(GraphBuilder &b, mlir::Operation *site, mlir::Value fresh);
  void end(mlir::func::FuncOp function);
  /// Adds the states, after the last function.
  void addStates();

private:
  struct Kept {
    std::string name;
    mlir::Value fresh, stored; ///< stored is a placeholder until the function's end
    mlir::Value chosen;
  };
  mlir::ModuleOp module;
  llvm::StringMap<int64_t> numbers; ///< by node, operation and occurrence: the same in every function of a model
  llvm::StringMap<int64_t> seen;    ///< in the function at hand
  llvm::SmallVector<Kept> sites;
  mlir::Value due;
};

} // namespace mpt

#endif // MPT_PRECISION_KEPTFACTORS_H
