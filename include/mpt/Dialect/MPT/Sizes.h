// SPDX-License-Identifier: Apache-2.0
// Names of functions in a module of several sizes, which share their state: @step and @"step[batch=8]".
#ifndef MPT_DIALECT_MPT_SIZES_H
#define MPT_DIALECT_MPT_SIZES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// Notes that the functions of `module` are there in sizes of these names, in the first size under their own names.
void setSizes(mlir::ModuleOp module, llvm::ArrayRef<llvm::StringRef> sizes);

/// The name of a symbol of another size than the first.
std::string nameInSize(llvm::StringRef name, llvm::StringRef size);

/// The name that a symbol of any size has in the first one.
llvm::StringRef nameInFirstSize(llvm::StringRef name);

/// The size that a function of `module` is of; empty for the first one, and in modules of one size.
llvm::StringRef sizeOf(mlir::func::FuncOp function, mlir::ModuleOp module);

} // namespace mpt

#endif // MPT_DIALECT_MPT_SIZES_H
