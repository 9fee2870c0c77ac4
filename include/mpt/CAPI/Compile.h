// One compilation from an input file to its product.
#ifndef MPT_CAPI_COMPILE_H
#define MPT_CAPI_COMPILE_H

#include "mpt/CAPI/CompileOptions.h"

#include "mlir/Support/LLVM.h"

namespace mpt {

/// Runs the phases that `options` names and writes the product. Diagnostics and progress go to `log`; a module, IR or
/// report asked for on standard output goes to `out`. On failure nothing is left half written.
llvm::LogicalResult compile(const CompileOptions &options, llvm::raw_ostream &out, llvm::raw_ostream &log);

/// main() of a compilation: parses `words`, compiles, returns the process status.
int compilerMain(llvm::ArrayRef<llvm::StringRef> words);

} // namespace mpt

#endif // MPT_CAPI_COMPILE_H
