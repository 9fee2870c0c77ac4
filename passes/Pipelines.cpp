// SPDX-License-Identifier: Apache-2.0
// The order of the compiler's phases and of the passes in them, and the reasons for it.
#include "passes/Pipelines.h"

#include "mpt/Fusion/KernelCapabilities.h"
#include "passes/distribution/Passes.h"
#include "passes/fusion/Passes.h"
#include "passes/import/Passes.h"
#include "passes/library/Passes.h"
#include "passes/lowering/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/precision/Passes.h"
#include "passes/training/Passes.h"

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mpt;
using target::Capabilities;

namespace {

/// Folding and common subexpressions change no bit: the ops are pure, and folders are exact.
void addCleanup(OpPassManager &passes) {
  passes.addPass(createCanonicalizerPass());
  passes.addPass(createCSEPass());
}

void buildImport(OpPassManager &passes, const PipelineOptions &, const Capabilities &) {
  passes.addPass(createOnnxToCore());
  addCleanup(passes);
  // After the clean-up, so that a chain of primitives is whole and has no dead users.
  passes.addPass(createRecognizeComposites());
  // Gradients last: they are looked for at the composites of the forward pass.
  passes.addPass(createRecognizeNorms());
  passes.addPass(createRecognizeGradients());
  passes.addPass(createRecognizeBackward());
}

/// The passes behind the gradients: an optimizer, unless the file has one, and micro-steps.
void addUpdates(OpPassManager &passes, const PipelineOptions &options) {
  // @gradients shares everything with @step up to the optimizer, so it is cloned before there is one.
  if (options.algorithms <= 1)
    passes.addPass(createGradients());
  // A joint graph that updates by itself has none.
  if (options.algorithms ? options.ownOptimizer : !options.optimizer.empty()) {
    OptimizerOptions optimizer;
    optimizer.optimizer = options.optimizer;
    optimizer.clipNorm = options.clipNorm;
    passes.addPass(createOptimizer(optimizer));
  }
  // Before the clone for micro-steps, which drops the writes of updates.
  passes.addPass(createAverage({options.ema}));
  AccumulateOptions accumulate;
  accumulate.microSteps = options.accumulate;
  if (options.algorithms <= 1)
    passes.addPass(createAccumulate(accumulate));
  // Not before the optimizer: a gradient that nobody uses yet would be dead code.
  addCleanup(passes);
  // Last: every function is there, and clean-up has folded the operands of indices.
  passes.addPass(createCheckIndices());
}

void buildTraining(OpPassManager &passes, const PipelineOptions &options, const Capabilities &) {
  if (options.noDropout)
    passes.addPass(createRemoveDropout());
  // Before the clones, which share it, and before differentiation: a simple forward pass has a simple backward pass.
  passes.addPass(createSimplify());
  // Before all that looks at results: results of a joint graph have roles.
  AdoptBackwardOptions adopt;
  adopt.update = options.optimizer.empty();
  passes.addPass(createAdoptBackward(adopt));
  // Before the evaluation form, whose ops have no gradients.
  passes.addPass(createDerive());
  if (options.forwardOnly) {
    passes.addPass(createEvaluate());
    passes.addPass(createCheckIndices());
    return;
  }
  if (options.algorithms) {
    AlgorithmsOptions algorithms;
    algorithms.updates = !options.ownOptimizer;
    algorithms.clipNorm = options.clipNorm;
    passes.addPass(createAlgorithms(algorithms));
    passes.addPass(createSimplify());
    addUpdates(passes, options);
    return;
  }
  // Before the loss: the results of @predict need no targets.
  if (options.loss != "none")
    passes.addPass(createEvaluate({"predict"}));
  LossOptions loss;
  loss.loss = options.loss;
  passes.addPass(createLoss(loss));
  // Before differentiation: @evaluate must not carry the backward pass.
  passes.addPass(createEvaluate({"evaluate"}));
  passes.addPass(createDifferentiate());
  passes.addPass(createSimplify());
  addUpdates(passes, options);
}

/// The user's requirements on types, for the pass that decides them in modules or in files.
template <typename Options> Options wishes(const PipelineOptions &options) {
  Options wishes;
  wishes.policy = options.policy;
  if (!options.keepF32.empty())
    wishes.keepF32 = {options.keepF32};
  if (!options.keepNarrow.empty())
    wishes.keepNarrow = {options.keepNarrow};
  wishes.rules.assign(options.rules.begin(), options.rules.end());
  wishes.checksRules = true;
  return wishes;
}

/// Parameters of fewer elements keep narrow copies unless asked: their memory is nothing beside the rest.
constexpr int64_t elementsWorthPacking = 1 << 16;

MasterWeightsOptions masterWeights(const PipelineOptions &options, const Capabilities &target) {
  MasterWeightsOptions masters;
  masters.packsSome = options.masters == "packed";
  masters.packedFrom = masters.packsSome ? 1 : elementsWorthPacking;
  // Divided masters want whole copies, and a check of every value wants it in memory.
  if (options.masters != "copied" && !options.shardOptimizer && !options.debugNonfinite)
    for (mpt_dtype type : target.calls.roundedOperands)
      masters.packed.push_back(type == MPT_FLOAT16 ? "f16" : "bf16");
  return masters;
}

void buildPrecision(OpPassManager &passes, const PipelineOptions &options, const Capabilities &target) {
  // Decisions first, on the whole module: functions share parameters.
  auto assign = wishes<AssignOptions>(options);
  assign.lossScale = options.lossScale;
  assign.slots = options.slots;
  assign.saved = options.saved;
  assign.ranges = options.ranges;
  passes.addPass(createAssign(assign));
  if (options.products) {
    // In place of the model, which says which products there are, and in which types.
    passes.addPass(createProducts());
    passes.addPass(createWidenReductions());
    passes.addPass(createVerify());
    return;
  }
  passes.addPass(createInsertCasts());
  // Masters recognize narrow parameters by the casts of their reads, and take those reads over.
  passes.addPass(createMasterWeights(masterWeights(options, target)));
  // Before loss scaling: gradients are found from the seed. After masters, which take over casts of parameters.
  passes.addPass(createQuantize());
  // After the operands of GEMMs, whose roundings serve here too.
  passes.addPass(createSaveActivations());
  passes.addPass(createAdaptiveScales());
  // After masters, so that writes of masters and of their narrow copies get the same condition.
  passes.addPass(createLossScaling());
  // After all types are final.
  passes.addPass(createWidenReductions());
  passes.addPass(createFoldCasts());
  // Directly after the passes that count rounding casts: clean-up may merge equal ones later.
  passes.addPass(createVerify());
}

void buildDistribution(OpPassManager &passes, const PipelineOptions &options, const Capabilities &) {
  if (options.replicas == "1" || options.products)
    return;
  // Before the others look for values that replicas have to agree on: running statistics are the same then.
  if (options.syncBatchNorm)
    passes.addPass(createSyncBatchNorm({options.replicas}));
  passes.addPass(createReplicate({options.replicas, options.sharedInputs, options.reduceType}));
  // Before values are gathered, so that messages are about one value.
  passes.addPass(createVerifyReplicas());
  if (options.shardOptimizer)
    passes.addPass(createShardOptimizer());
  passes.addPass(createBucket());
  passes.addPass(createVerifyReplicas());
}

/// Verifies in the output of later phases the properties that phase precision verified.
void addVerification(OpPassManager &passes, const Capabilities &target) {
  VerifyAccumulatorsOptions accumulators;
  for (const TensorCore &core : target.tensorCores)
    accumulators.tensorCores.push_back(core.name().str());
  passes.addPass(createVerifyAccumulators(accumulators));
  passes.addPass(createVerifyScales());
}

void buildFusion(OpPassManager &passes, const PipelineOptions &options, const Capabilities &target) {
  // Before all else: each of the two functions is fused by itself. Nothing happens without collectives.
  passes.addPass(createSplitReplicas());
  // The checks of --debug-nonfinite want every value in memory.
  bool joins = !options.debugNonfinite;
  // Before fusion: the ops that train ops turn into are decomposed and fused like all others.
  passes.addPass(createLowerTrain());
  // While softmax is whole.
  if (target.calls.attention && joins) {
    // Before it: it looks for one form alone.
    passes.addPass(createSplitHeads());
    passes.addPass(createFormAttention({target.calls.attentionDepth, target.calls.attentionUnit}));
    // Behind it: whatever scales and masks scores, the keys are operands of one call now.
    passes.addPass(createGroupQueries());
  }
  // A decision of stage library that has to be taken here: GELU is whole only before composites are decomposed, and
  // values that GEMMs compute on the way are nothing for kernels.
  if (target.calls.chainedGemms && joins && !options.rematerializeBytes)
    passes.addPass(createChainGemms({target.calls.chainedColumns}));
  // While norms are whole; behind GEMMs, which leave convolutions alone that are calls.
  if (target.calls.channelSums && joins)
    passes.addPass(createFuseChannelSums({target.calls.summedChannels, options.codeActivations}));
  const KernelCapabilities &kernels = target.fusion;
  DecomposeOptions decompose;
  decompose.sharedSums = kernels.sharedSums;
  // Step by step its sums are sums of GEMMs.
  decompose.recurrences = target.wholeRecurrences && !options.batchInvariant;
  decompose.coarseGelu = target.device;
  passes.addPass(createDecompose(decompose));
  addCleanup(passes);
  // After the last clean-up, which would merge roundings again, and before values are chosen that the backward pass
  // keeps.
  if (!target.calls.roundedOperands.empty())
    passes.addPass(createRoundOperands());
  // After the last clean-up, which would merge the tables of several readers.
  if (!kernels.memoryBound)
    passes.addPass(createCompactTables());
  // After the last clean-up, which would merge rematerialized values with their originals.
  RematerializeOptions rematerialize;
  rematerialize.bytes = options.rematerializeBytes;
  rematerialize.memoryBound = kernels.memoryBound && !options.rematerializeBytes;
  rematerialize.codeAll = options.codeActivations;
  passes.addPass(createRematerialize(rematerialize));
  // Behind it: a value that it repeats needs no codes.
  passes.addPass(createCodeActivations({options.codeActivations}));
  if (!target.calls.everyOperandType) {
    // Its conversions are kept apart for the backward pass as rematerialized values are.
    WidenOperandsOptions widen;
    widen.nativeFloat8 = target.calls.float8Gemms;
    passes.addPass(createWidenOperands(widen));
  }
  passes.addPass(createKeyStreams());
  if (kernels.memoryBound && joins)
    passes.addPass(createShareReads());
  FormOptions form;
  form.separate = !joins;
  form.sharedSums = kernels.sharedSums;
  form.columnOutputs = kernels.columnOutputs;
  form.keptRows = kernels.keptRows;
  form.bundles = kernels.bundles;
  form.memoryBound = kernels.memoryBound;
  passes.addPass(createForm(form));
  addVerification(passes, target);
}

void buildLibrary(OpPassManager &passes, const PipelineOptions &options, const Capabilities &target) {
  // First: the ops that a call can take in depend on the ops that run before it.
  passes.addPass(createScheduleUpdates());
  passes.addPass(createConvertCalls());
  FoldScalesOptions scales;
  scales.alphaScales = target.calls.alphaScales;
  scales.operandScales = target.calls.float8Gemms;
  scales.resultScales = target.calls.resultScales;
  passes.addPass(createFoldScales(scales));
  // After the scales, which multiply sums that nothing was added to yet.
  FoldEpiloguesOptions epilogues;
  epilogues.biasThroughReshape = target.calls.biasThroughReshape;
  passes.addPass(createFoldEpilogues(epilogues));
  // After every pass that decides which values there are.
  passes.addPass(createChooseLayouts());
  passes.addPass(createVerifyUpdates());
  // Calls were made of sums and factors that fusion left: they are looked at again.
  addVerification(passes, target);
  if (options.countTraffic)
    passes.addPass(target.device ? createCountTraffic({target.device->largestSharedBytes, target.device->sectorBytes})
                                 : createCountTraffic());
}

void buildBuffers(OpPassManager &passes, const PipelineOptions &options, const Capabilities &) {
  passes.addPass(createAssignDestinations());
  passes.addPass(createBufferize(options.target));
}

void buildKernels(OpPassManager &passes, const PipelineOptions &options, const Capabilities &) {
  passes.addPass(createEmitKernels(options.target));
  // Before the plan: a running value is told from the buffers that a kernel itself names.
  passes.addPass(createMemoryVerifyAccumulators());
}

/// Behind the kernels, which say how much scratch they need and what they may write over.
void buildMemory(OpPassManager &passes, const PipelineOptions &, const Capabilities &) {
  passes.addPass(createPlan());
  passes.addPass(createVerifyPlan());
}

constexpr Phase phases[] = {
    {"import", buildImport},       {"training", buildTraining},
    {"precision", buildPrecision}, {"distribution", buildDistribution},
    {"fusion", buildFusion},       {"library", buildLibrary},
    {"buffers", buildBuffers},     {"kernels", buildKernels},
    {"memory", buildMemory},
};

} // namespace

ArrayRef<Phase> mpt::compilerPhases() { return phases; }

void Phase::build(OpPassManager &passes, const PipelineOptions &options) const {
  std::shared_ptr<const target::Target> target = options.target;
  if (!target)
    target = target::createTarget("");
  addPasses(passes, options, target->capabilities());
  target->addPasses(name, passes);
}

void mpt::buildSizes(OpPassManager &passes) { passes.addPass(createJoinSizes()); }

void mpt::buildNodeRewriting(OpPassManager &passes, const PipelineOptions &options) {
  auto assign = wishes<AssignNodesOptions>(options);
  assign.ranges = options.ranges;
  passes.addPass(createAssignNodes(assign));
  passes.addPass(createCastNodes());
}

void mpt::registerAllPasses() {
  registerImportPasses();
  registerTrainingPasses();
  registerPrecisionPasses();
  registerDistributionPasses();
  registerFusionPasses();
  registerLibraryPasses();
  registerMemoryPasses();
  registerLoweringPasses();
  mlir::registerTransformsPasses();
}
