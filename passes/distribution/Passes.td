// SPDX-License-Identifier: Apache-2.0
// Passes of the distribution stage. Flag, class, file and test share one name: --distribution-<name>, <Name>.cpp, test/passes/distribution/<name>.mlir.
#ifndef MPT_PASSES_DISTRIBUTION_PASSES_TD
#define MPT_PASSES_DISTRIBUTION_PASSES_TD

include "passes/PassBase.td"

defvar distributionDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect", "::mpt::dist::DistDialect", "::mlir::shard::ShardDialect"];

def SyncBatchNorm : Pass<"distribution-sync-batch-norm", "::mlir::ModuleOp"> {
  let dependentDialects = distributionDialects;
  let summary = "Normalize by the statistics of all replicas' rows";
  let description = [{
    In: `@step` after stage precision. Out: the grid `@replicas`, and each batch norm of activations as it would be of the
    rows of all replicas (arXiv 1502.03167):

    | op | exchanges | then |
    |---|---|---|
    | `mpt.batch_norm` | `shard.all_gather` of the replica's mean and variance, [1, 2C] to [V, 2C] | the mean of the means; the variance is the mean of the variances and of the squares of what the means are off by |
    | `mpt.batch_norm_backward` | `shard.all_reduce` of the sums of dy and of dy xhat | dx as of V times as many rows |

    All of it is FP32 or wider. Running statistics follow from what is the same on all replicas. Gradients of scale and bias
    are the replica's own, of which `distribution-replicate` takes the mean as of all others. A norm of parameters alone stays.
    Refused are steps without a batch norm, and statistics that gradients reach.
  }];
  let options = [Option<"replicas", "replicas", "std::string", "\"1\"", "number of replicas; with 1 nothing changes">];
  let statistics = [Statistic<"numNorms", "norms", "batch norms over the rows of all replicas">];
}

def Replicate : Pass<"distribution-replicate", "::mlir::ModuleOp"> {
  let dependentDialects = distributionDialects;
  let summary = "Make a training step the program of every replica, with collectives where replicas meet";
  let description = [{
    In: `@step` after stage precision. Out: the grid `@replicas`, and `@step` as each replica runs it on rows of its own
    (`dist.split`): those of every input whose first dimension is a multiple of the batch, which is the first one's. A global step is the mean over the replicas of what one of them computes:

    | value | becomes |
    |---|---|
    | gradient of a parameter, unscaled | its mean, before anything looks at it: checks, norm and optimizer see one value |
    | statistic that is written (batch norm) | its mean |
    | newest largest magnitude of a history (`train.roll`) | the largest |
    | check that values are finite which each replica has of its own | true where it is for all |
    | scale that is written | the smallest |
    | floating-point scalar that is returned (losses) | its mean |

    Sums are FP32 or wider. With `reduce-type=bf16` each replica's gradient is rounded to BF16 before it is added: to nearest
    even, so that the mean is off by at most 2^-9 of the mean magnitude, where nothing underflows. What draws random numbers on the way to a gradient draws by the number of its replica: step + 2^48
    times the number, so that replica 0 draws as a step without replicas does. With one replica nothing changes.
  }];
  let options = [
    Option<"replicas", "replicas", "std::string", "\"1\"", "number of replicas, or any: one a process, however many there are">,
    Option<"shared", "shared", "std::string", "\"\"", "regular expression: inputs of these names are the same for all replicas">,
    Option<"reduceType", "reduce-type", "std::string", "\"f32\"", "type of a replica's gradients when they travel: f32 or bf16">
  ];
  let statistics = [
    Statistic<"numReduced", "reduced", "values that replicas reduce">,
    Statistic<"numDraws", "draws", "ops that draw by the number of their replica">
  ];
}

def ShardOptimizer : Pass<"distribution-shard-optimizer", "::mlir::ModuleOp"> {
  let dependentDialects = distributionDialects;
  let summary = "Divide the optimizer's work and state over the replicas (ZeRO, stage 1)";
  let description = [{
    In: `@step` with means of gradients over `@replicas`. Out: replica k of V updates elements [k c, (k + 1) c) of every
    parameter, where c is the V-th part of its elements, rounded up to a multiple of 16; zeros follow the last element
    (arXiv 1910.02054, P_os).

    | value | becomes |
    |---|---|
    | sum of a gradient | `shard.reduce_scatter` of its rows, [V, c] to [1, c] |
    | op of the update, element by element | the same on [c]; constants and scalars as before, other operands by `shard.all_slice` |
    | master, slot | a state with `dist.shard` = c: each replica keeps its own |
    | value that is written to another state, such as the narrow weight | `shard.all_gather` of its shards |
    | op that draws by an element's position (stochastic rounding) | the same on the gathered value |
    | check that gradients are finite | that of every shard, combined as a maximum |
    | norm of gradients | sums of squares of shards, added over the replicas |

    A parameter whose shard would not be smaller stays whole. So does a master or slot that something else reads. Updates
    that take norms or means of a parameter (LAMB, LARS, Adafactor) are refused.
  }];
  let statistics = [Statistic<"numStates", "states", "states that are divided">];
}

def Bucket : Pass<"distribution-bucket", "::mlir::ModuleOp"> {
  let dependentDialects = distributionDialects;
  let summary = "Gather values that are summed over replicas in buckets";
  let description = [{
    In: collectives of single values. Out: sums one behind the other, in the order in which the backward pass makes them, in
    buckets of at least `bytes` (the first one of `first-bytes`, so that communication starts early). A bucket is one
    collective on a vector, in the type that is given; sums that are scattered, and shards that are gathered, lie side by side in rows.
    Collectives that wait for each other, or have different types, are never joined. Other reductions stay single.

    ```mlir
    %a = shard.all_reduce %0 on @replicas grid_axes = [0] : tensor<2x3xf32> -> tensor<2x3xf32>
    %b = shard.all_reduce %1 on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    // becomes
    %both = mpt.concat %0r, %1 {axis = 0 : i64} : (tensor<6xf32>, tensor<4xf32>) -> tensor<10xf32>
    %sums = shard.all_reduce %both on @replicas grid_axes = [0] : tensor<10xf32> -> tensor<10xf32>
    ```
  }];
  let options = [
    Option<"bytes", "bytes", "int64_t", "26214400", "of a bucket, at least; the last one holds what is left">,
    Option<"firstBytes", "first-bytes", "int64_t", "1048576", "of the first bucket, at least">
  ];
  let statistics = [Statistic<"numBuckets", "buckets", "collectives on several values">];
}

def VerifyReplicas : Pass<"distribution-verify-replicas", "::mlir::ModuleOp"> {
  let summary = "Fail where replicas could come to disagree, or wait for each other for ever";
  let description = [{
    In: steps with collectives. Out: the same, or an error for each of:
    - a state that is written from a value, or under a condition, that may differ from replica to replica;
    - a divided state (`dist.shard`) that is written from more than a shard: from what depends on a replica's own rows;
    - a result that may differ;
    - a collective over another grid, or over less than all replicas, or along another axis than the first;
    - a sum in less than FP32;
    - rows that are gathered of a value that is the same on every replica.

    A value differs where it depends on a split argument or on the number of the replica, and no collective lies between. The
    argument: a step is one block without branches, so that all replicas run the same collectives in the same order, and none
    waits for one that another replica does not come to; what
    depends on states, on shared arguments and on results of collectives alone is computed from the same bits by the same
    operations. So states stay equal, by induction over steps. Shards are parts of one tensor that all would compute alike.
  }];
}

#endif
