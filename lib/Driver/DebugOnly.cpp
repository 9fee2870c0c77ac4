// SPDX-License-Identifier: Apache-2.0
// Checks the passes that --debug-only names.
#include "mpt/Driver/DebugOnly.h"

#include "mpt/Support/Refusal.h"
#include "passes/Pipelines.h"

#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

Error mpt::debugOnly(StringRef flags) {
  registerAllPasses();
  for (StringRef flag : split(flags, ','))
    if (!mlir::PassInfo::lookup(flag))
      return createStringError("expected names of passes for --debug-only, as in fusion-form,memory-plan, got '" +
                               flag + "'; mpt-opt --help-passes lists them");
  showRefusals(flags);
  return Error::success();
}
