// SPDX-License-Identifier: Apache-2.0
// Passes of the distribution stage. Flag, class, file and test share one name: --distribution-<name>, <Name>.cpp, test/passes/distribution/<name>.mlir.
#ifndef MPT_PASSES_DISTRIBUTION_PASSES_TD
#define MPT_PASSES_DISTRIBUTION_PASSES_TD

include "passes/PassBase.td"

defvar distributionDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect", "::mpt::dist::DistDialect", "::mlir::shard::ShardDialect"];

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

    Sums are FP32 or wider. What draws random numbers on the way to a gradient draws by the number of its replica: step + 2^48
    times the number, so that replica 0 draws as a step without replicas does. With one replica nothing changes.
  }];
  let options = [
    Option<"replicas", "replicas", "std::string", "\"1\"", "number of replicas, or any: one a process, however many there are">,
    Option<"shared", "shared", "std::string", "\"\"", "regular expression: inputs of these names are the same for all replicas">
  ];
  let statistics = [
    Statistic<"numReduced", "reduced", "values that replicas reduce">,
    Statistic<"numDraws", "draws", "ops that draw by the number of their replica">
  ];
}

def Bucket : Pass<"distribution-bucket", "::mlir::ModuleOp"> {
  let dependentDialects = distributionDialects;
  let summary = "Gather values that are summed over replicas in buckets";
  let description = [{
    In: collectives of single values. Out: sums one behind the other, in the order in which the backward pass makes them, in
    buckets of at least `bytes` (the first one of `first-bytes`, so that communication starts early). A bucket is one
    collective on a vector of FP32. Other reductions stay single.

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
    - a result that may differ;
    - a collective over another grid, or over less than all replicas;
    - a sum in less than FP32;
    - a collective that waits for the result of another one: a step meets once.

    A value differs where it depends on a split argument or on the number of the replica, and no collective lies between. The
    argument: a step is one block without branches, so that all replicas run the same collectives in the same order; what
    depends on states, on shared arguments and on results of collectives alone is computed from the same bits by the same
    operations. So states stay equal, by induction over steps.
  }];
}

#endif
