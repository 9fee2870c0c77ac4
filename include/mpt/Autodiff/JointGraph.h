// SPDX-License-Identifier: Apache-2.0
// Queries of passes on a graph that brings its backward pass.
#ifndef MPT_AUTODIFF_JOINTGRAPH_H
#define MPT_AUTODIFF_JOINTGRAPH_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"

namespace mpt {

/// The function of a module whose file brings gradients, or new values of parameters; null in other modules.
mlir::func::FuncOp jointGraph(mlir::ModuleOp module);
/// Whether the gradients that the file brings are used for training.
bool usesBackwardOfFile(mlir::ModuleOp module);
/// The ops that results without the role of a gradient or a new value are computed by.
llvm::DenseSet<mlir::Operation *> forwardOps(mlir::func::FuncOp function);
/// The results that are new values of states, with the states.
llvm::SmallVector<std::pair<mlir::Value, mlir::FlatSymbolRefAttr>> newValues(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_AUTODIFF_JOINTGRAPH_H
