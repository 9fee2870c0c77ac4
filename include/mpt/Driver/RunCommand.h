// SPDX-License-Identifier: Apache-2.0
// mpt-run's command line: which module to run, and which results to report.
#ifndef MPT_DRIVER_RUNCOMMAND_H
#define MPT_DRIVER_RUNCOMMAND_H

#include "mpt/Reference/Certificate.h"
#include "mpt/Reference/RunTool.h"
#include "mpt/Support/TensorCores.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace mpt {

enum class RunMode { Run, Calibrate, Blame, Certify };

/// One call of mpt-run. The input is an .mlir file, run as it is, or a model, compiled first with `compileWords`.
struct RunCommand {
  std::string input;
  RunMode mode = RunMode::Run;
  RunOptions run;
  std::vector<std::string> batches; ///< safetensors files, one a step, in turn
  int64_t steps = 0;                ///< 0: one for each batch
  std::string output = "-";         ///< JSON of `calibrate`, `blame` and `certify`; - is standard output
  std::string reference;            ///< .mlir file in FP32 that an .mlir input is validated against
  std::string library; ///< folder of an emitted library, which is validated in place of the interpreter's run
  CertificateLimits limits;
  std::optional<TensorCore> core;        ///< which products add up as on
  std::vector<std::string> compileWords; ///< mpt-opt's words: loss, optimizer, policy, ...

  static llvm::Expected<RunCommand> parse(llvm::ArrayRef<llvm::StringRef> words);
  static std::string help();
};

/// main() of mpt-run. Status 0: done, and nothing found against the model (within its error bounds, no step found at
/// fault); 1: it was found wanting; 2: it could not be run.
int runMain(llvm::ArrayRef<llvm::StringRef> words);

} // namespace mpt

#endif // MPT_DRIVER_RUNCOMMAND_H
