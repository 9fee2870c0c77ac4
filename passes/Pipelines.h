// SPDX-License-Identifier: Apache-2.0
// The compiler's phases: their names, their order, and what each of them runs.
#ifndef MPT_PASSES_PIPELINES_H
#define MPT_PASSES_PIPELINES_H

#include "mlir/Pass/PassManager.h"
#include <string>
#include <vector>

namespace mpt {

/// What the phases need to know of the user's wishes. Empty text means not given.
struct PipelineOptions {
  std::string loss = "none"; ///< of --training-loss; none: the graph has one
  std::string optimizer = "sgd,lr=0.01";
  std::string policy = "fp32";   ///< built-in policy or a path to a policy file
  std::string placement = "cut"; ///< of casts: cut, or painting for comparison
  std::string target = "cpu";    ///< or cuda
  std::string arch;              ///< CUDA: architectures to carry code for, separated by commas; the default if empty
  std::string mcpu = "native";
  std::string keepF32, keepNarrow; ///< regular expressions over node names
  std::vector<std::string> rules;  ///< rules as in a policy file, without `policy.`, which beat the policy's
  std::string ranges;              ///< file of mpt-run --calibrate, for policy auto and the precision report
  std::string lossScale;           ///< overrides the policy's: none, a number, or dynamic with settings
  double clipNorm = 0.0;           ///< largest global gradient norm; 0 does not clip
  int64_t accumulate = 1;          ///< micro-steps whose gradients are summed before an update
  int64_t memoryBudget = 0;        ///< most bytes of state and arena that the step may need; 0 does not limit
  int64_t recomputeBytes = 0;      ///< bytes of saved activations to give up by further passes over memory
  bool countTraffic = false;       ///< functions on buffers say how little their kernels could move
  bool noDropout = false;
  bool fuseAttention = true;   ///< CUDA: attention as one call where it can be
  bool debugNonfinite = false; ///< the library looks for the first value that is not finite
  bool forwardOnly = false;    ///< no loss, backward or optimizer
};

/// One named phase.
struct Phase {
  llvm::StringLiteral name;
  void (*build)(mlir::OpPassManager &, const PipelineOptions &);
};

/// All phases in order: import, training, precision, fusion, library, memory. (What follows, the target, writes files.)
llvm::ArrayRef<Phase> compilerPhases();

/// The rewriting of a graph of ONNX nodes that goes back into a file; the other phases have no part in it.
void buildNodeRewriting(mlir::OpPassManager &passes, const PipelineOptions &options);

/// Registers mpt's passes, each phase as a pipeline (`--phase-<name>`), and the upstream passes that they use.
void registerAllPasses();

} // namespace mpt

#endif // MPT_PASSES_PIPELINES_H
