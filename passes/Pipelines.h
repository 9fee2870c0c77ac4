// SPDX-License-Identifier: Apache-2.0
// The compiler's phases: their names, their order, and their passes.
#ifndef MPT_PASSES_PIPELINES_H
#define MPT_PASSES_PIPELINES_H

#include "mpt/Target/Target.h"

#include "mlir/Pass/PassManager.h"
#include <string>
#include <vector>

namespace mpt {

/// The user's options, as the phases need them. Empty text means not given.
struct PipelineOptions {
  std::string loss = "none"; ///< of --training-loss; none: the graph has one
  /// Empty where the file has an update of its own.
  std::string optimizer = "sgd,lr=0.01";
  std::string policy = "fp32";     ///< built-in policy or a path to a policy file
  std::string keepF32, keepNarrow; ///< regular expressions over node names
  std::vector<std::string> rules;  ///< rules as in a policy file, without `policy.`, which beat the policy's
  std::string ranges;              ///< file of mpt-run --calibrate, for policy auto and the precision report
  std::string lossScale;           ///< overrides the policy's: none, a number, or dynamic with settings
  std::string slots;               ///< type of optimizer state in place of the policy's: f32, f16 or bf16
  std::string saved;               ///< f8: activations wait for the backward pass in 8 bits; storage: not by any rule
  std::string masters;             ///< copied: narrow copies beside them; packed: none; else by size
  double clipNorm = 0.0;           ///< largest global gradient norm; 0 does not clip
  double ema = 0.0;                ///< decay of averages of the parameters; 0 keeps none
  int64_t accumulate = 1;          ///< micro-steps whose gradients are summed before an update
  std::string replicas = "1";      ///< of the step, each with rows of its own: a number, or any (one a process)
  std::string reduceType = "f32";  ///< of a replica's gradients when they travel
  bool shardOptimizer = false;     ///< divide masters and optimizer state over replicas
  bool syncBatchNorm = false;      ///< batch norms take the statistics of all replicas' rows
  std::string sharedInputs;        ///< regular expression over inputs that all replicas read whole
  int64_t memoryBudget = 0;        ///< most bytes of state and arena that the step may need; 0 does not limit
  int64_t rematerializeBytes = 0;  ///< bytes of saved activations to give up by further passes over memory
  bool codeActivations = false;    ///< activations of all nodes may wait as codes
  bool countTraffic = false;       ///< functions on buffers say how little their kernels could move
  bool noDropout = false;
  bool batchInvariant = false; ///< a row's bits depend on nothing beside the row
  bool products = false;       ///< the library of the policy's products, to be timed, in place of the model's
  bool debugNonfinite = false; ///< the library looks for the first value that is not finite
  bool forwardOnly = false;    ///< no loss, backward or optimizer
  int64_t algorithms = 0;      ///< steps that the file brings: there are these and no others
  bool ownOptimizer = false;   ///< `optimizer` updates, not the file's algorithms
  std::shared_ptr<const target::Target> target; ///< asked for its capabilities; the default one if null
};

/// One named phase.
struct Phase {
  llvm::StringLiteral name;
  void (*addPasses)(mlir::OpPassManager &, const PipelineOptions &, const target::Capabilities &);

  /// Adds the phase's passes, then the target's additions to it.
  void build(mlir::OpPassManager &passes, const PipelineOptions &options) const;
};

/// All phases in order: import, training, precision, distribution, fusion, library, memory. (The target behind them
/// writes files.)
llvm::ArrayRef<Phase> compilerPhases();

/// Between phases training and precision: makes one module of a model's modules in several sizes. Types are decided
/// after it, for all sizes at once, since they share their states.
void buildSizes(mlir::OpPassManager &passes);

/// The rewriting of a graph of ONNX nodes that goes back into a file; the other phases have no part in it.
void buildNodeRewriting(mlir::OpPassManager &passes, const PipelineOptions &options);

/// Registers mpt's passes, each phase as a pipeline (`--phase-<name>`), and the upstream passes that they use.
void registerAllPasses();

} // namespace mpt

#endif // MPT_PASSES_PIPELINES_H
