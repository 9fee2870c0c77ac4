// SPDX-License-Identifier: Apache-2.0
// mpt-opt: compiles ONNX models, or runs passes on .mlir files. By the name mpt-run: runs steps in the reference
// interpreter, and reports its findings.
#include "mpt/Driver/Compile.h"
#include "mpt/Driver/DebugOnly.h"
#include "mpt/Driver/Questions.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Driver/RunCommand.h"
#include "passes/Pipelines.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/Path.h"

int main(int argc, char **argv) {
  llvm::SmallVector<llvm::StringRef> words(argv + 1, argv + argc);
  if (llvm::sys::path::filename(argv[0]) == "mpt-run")
    return mpt::runMain(words);
  if (mpt::isCompilation(words))
    return mpt::compilerMain(words);
  mlir::DialectRegistry registry;
  mpt::registerAll(registry);
  mpt::registerAllPasses();
  llvm::SmallVector<char *> arguments;
  for (int i = 0; i < argc; ++i) {
    llvm::StringRef flags = argv[i];
    if (flags == "--debug-only" && i + 1 < argc) {
      flags = argv[++i];
    } else if (!flags.consume_front("--debug-only=")) {
      arguments.push_back(argv[i]);
      continue;
    }
    if (llvm::Error unknown = mpt::debugOnly(flags)) {
      llvm::errs() << "mpt-opt: " << llvm::toString(std::move(unknown)) << "\n";
      return 1;
    }
  }
  return mlir::asMainReturnCode(mlir::MlirOptMain(arguments.size(), arguments.data(), "mpt's passes\n", registry));
}
