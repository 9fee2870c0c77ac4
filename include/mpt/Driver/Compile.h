// SPDX-License-Identifier: Apache-2.0
// One compilation from an input file to its product.
#ifndef MPT_DRIVER_COMPILE_H
#define MPT_DRIVER_COMPILE_H

#include "mpt/Driver/CompileOptions.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mpt {

/// Runs the phases that `options` names and writes the product. Diagnostics and progress go to `log`; a module, IR or
/// report asked for on standard output goes to `out`. On failure nothing is left half written.
llvm::LogicalResult compile(CompileOptions options, llvm::raw_ostream &out, llvm::raw_ostream &log);

/// Registers and loads every dialect in `context`, and prints diagnostics to `log`, which must outlive it.
void prepareContext(mlir::MLIRContext &context, llvm::raw_ostream &log);

/// Runs the phases up to the one that `options` names as last (reports included) and returns the module in `context`,
/// which prepareContext() has prepared.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> compileModule(const CompileOptions &options,
                                                                 mlir::MLIRContext &context, llvm::raw_ostream &out,
                                                                 llvm::raw_ostream &log);

/// As the package and emitted manifests state it.
llvm::StringRef compilerVersion();

/// main() of a compilation: parses `words`, compiles, returns the process status.
int compilerMain(llvm::ArrayRef<llvm::StringRef> words);

} // namespace mpt

#endif // MPT_DRIVER_COMPILE_H
