// Passes of the precision stage: constructors and registration.
#ifndef MPT_PASSES_PRECISION_PASSES_H
#define MPT_PASSES_PRECISION_PASSES_H

#include "mlir/Pass/Pass.h"

#include <string>

namespace mpt {

/// What the compiler's flags say about precision; empty strings leave the policy's choice.
struct PrecisionOptions {
  std::string policy = "fp32";     ///< built-in policy, or the path of a policy file
  std::string keepF32, keepNarrow; ///< regular expressions of node names
  std::string lossScale;           ///< dynamic, none or a number
};

#define GEN_PASS_DECL
#include "passes/precision/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/precision/Passes.h.inc"

} // namespace mpt

#endif // MPT_PASSES_PRECISION_PASSES_H
