// SPDX-License-Identifier: Apache-2.0
// Passes of the fusion stage. Flag, class, file and test share one name: --fusion-<name>, <Name>.cpp, test/passes/fusion/<name>.mlir.
#ifndef MPT_PASSES_FUSION_PASSES_TD
#define MPT_PASSES_FUSION_PASSES_TD

include "passes/PassBase.td"

def SplitReplicas : Pass<"fusion-split-replicas", "::mlir::ModuleOp"> {
  let dependentDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect", "::mlir::shard::ShardDialect"];
  let summary = "A step with collectives becomes functions, before and after the replicas meet";
  let description = [{
    In: `@step` after stage distribution. Out: `@replica`, which computes from a replica's rows what collectives take in, and
    changes no state; `@combine`, which takes what they make, and does the rest. The i-th collective's value is a result of the
    one and an argument of the other, of role `sum` or `max` (`train.role`). The runtime reduces between the two, so a process runs
    `@replica` once for each of its replicas and `@combine` once a step. What both need of states, each computes.

    Where collectives wait for others, replicas meet more than once: with divided states (`dist.shard`), and with synchronised
    batch norms. `@between_1`, `@between_2` ... are between the two, and run once a replica: each takes what was exchanged
    before (of role `scatter`, the replica's own row) and makes what the next meeting exchanges (of role `gather`, its row).
    `dist.phase` numbers all of them. The last of them writes the divided states.

    What a replica has computed from rows of its own and needs again behind a meeting it keeps: of role `kept` is a
    result of one of these functions and an argument of later ones. Operations of a few instructions an element are computed
    again where that keeps fewer bytes.
  }];
  let statistics = [Statistic<"numKept", "kept", "values that a replica keeps from one function to a later one">];
}

def LowerTrain : Pass<"fusion-lower-train", "::mlir::ModuleOp"> {
  let summary = "write the training arithmetic in core ops; make conditional writes unconditional";
  let description = [{
    In: functions of the training form after phase precision. Out: of the train dialect only `train.state`, `train.read` and
    unconditional `train.write` are left. A conditional write becomes a select between the new and the old value, so that
    skipping a step is data and needs no branch; gradient markers go. Training ops said where the backward pass and the
    update are: contractions state it instead (`train.part`).
  }];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def Decompose : Pass<"fusion-decompose", "::mlir::ModuleOp"> {
  let summary = "replace composites without a loop form by simpler ops; split long reductions in two stages";
  let description = [{
    In: core ops. Out: every op is a library op, a view, or has a loop form. A reduction with few results over many elements
    becomes partial sums over a fixed number of blocks and a reduction of those: parallel, and the same sum whatever the
    number of threads. With `shared-sums` no reduction is split; a variance around a mean over the same elements becomes two
    sums in FP64 instead, so that one pass over the elements makes both, and factors that repeat along the summed axes are
    multiplied with the sum, so that the gradient of a batch norm sums twice instead of four times. With `recurrences`, recurrences
    of FP32 and 16-bit types and CTC's recursion of any type stay whole; without it, and of other types, they become their steps.
    With `coarse-gelu`, a GELU of which 8 bits are all that is left stays whole: its loop form is one approximation.
    An update of slots in 8 bits gets a row for each block that has a scale, so that it becomes one kernel.
  }];
  let options = [Option<"sharedSums", "shared-sums", "bool", "false", "the threads of a kernel share one sum among them">,
    Option<"recurrences", "recurrences", "bool", "false", "recurrences have a form on buffers">,
    Option<"coarseGelu", "coarse-gelu", "bool", "false", "kernels have a GELU for results of 8 bits">];
  let statistics = [Statistic<"numSplit", "split-reductions", "reductions that were split in two stages">,
    Statistic<"numInBlocks", "block-updates", "ops of updates that were moved to a row a block">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def CodeActivations : Pass<"fusion-code-activations", "::mlir::ModuleOp"> {
  let summary = "activations wait for the backward pass in 8 bits with a scale a row";
  let description = [{
    In: core ops after fusion-rematerialize, which has decided what the backward pass reads from the forward pass. Out: of the
    nodes that a rule `saved` of the policy names, it reads codes: f8E4M3FN of x / scale, with scale = amax / 448 of a row of the
    last axis, or of an image of a convolution (more axes where they have fewer than 32 elements). The forward pass itself
    reads what it did. Reading back is arithmetic at the value's own index, and joins the kernels that read it; an operand of a
    GEMM is written once more for it. Values that an exponential is taken of (but for their squares) or that the loss reads
    through no GEMM stay as they are; those of a softmax wait as its result. A function with codes carries `mpt.coded`.
  }];
  let options = [Option<"all", "all", "bool", "false", "of all nodes, unless a rule says otherwise">];
  let statistics = [Statistic<"numCoded", "coded", "activations that wait as codes">,
    Statistic<"savedBytes", "saved-bytes", "bytes that they take less">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def Rematerialize : Pass<"fusion-rematerialize", "::mlir::ModuleOp"> {
  let summary = "compute values once more in the backward pass where that costs no traffic, or to save memory";
  let description = [{
    In: core ops after fusion-decompose, whose contractions state their part of the step. Out: arithmetic that the backward pass
    reads is rematerialized from values that are kept anyway, inside the kernels that read it; casts of inputs are too. What
    to keep is a minimum cut over bytes: library calls, reductions and random numbers are never repeated.

    Values that library calls of the backward pass read are rematerialized as well, by a pass over memory each, where that
    keeps fewer bytes. Cheap arithmetic comes first, such as ReLU and the scale and shift of a normalization, and large
    values before small ones. This goes on while the traffic takes less than `effort` percent of the time of the contractions
    (at 4 FLOP a byte moved; an exponential counts as 24 bytes). Each is computed from at most two values of its size. With
    `bytes`, further ones are until so many bytes fewer are kept. With `memory-bound` no pass over memory is added.

    Rematerialized ops carry `mpt.recomputed`, so that fusion-form does not join them with the forward pass. No bit of a
    result changes.

    ```mlir
    %f = mpt.exp %x : tensor<64x128xf32>              // forward
    %d = mpt.mul %g, %f : tensor<64x128xf32>          // backward: keeps %f till here
    // becomes, where %x is kept anyway
    %e = mpt.exp %x {mpt.recomputed} : tensor<64x128xf32>
    %d = mpt.mul %g, %e : tensor<64x128xf32>
    ```
  }];
  let options = [Option<"bytes", "bytes", "int64_t", "0", "bytes to keep less, by further passes over memory">,
    Option<"effort", "effort", "double", "1.0", "percent of the contractions' time that passes over memory may add">,
    Option<"memoryBound", "memory-bound", "bool", "false", "traffic counts more than bytes kept: rematerialize nothing in memory, nor from several operands of its size">,
    Option<"codeAll", "code-all", "bool", "false", "activations of all nodes may wait as codes, as under fusion-code-activations">];
  let statistics = [
    Statistic<"numRematerialized", "rematerialized", "ops computed once more">,
    Statistic<"keptBytes", "kept-bytes", "bytes kept for the backward pass">
  ];
}

def ShareReads : Pass<"fusion-share-reads", "::mlir::ModuleOp"> {
  let summary = "rematerialize values where their operands are read anyway";
  let description = [{
    In: core ops after fusion-rematerialize. Out: the same values, with fewer bytes read and written by the kernels that
    fusion-form will make. A value in memory is rematerialized by a kernel that reads all it follows from for other reasons (the ReLU before a
    batch norm's gradient: its mask follows from the norm's input, which the gradient needs as well). What kernels on both sides
    of a sum over many elements need is computed on both sides, where that reads fewer bytes than writing and reading it (the masked
    gradient). No bit of a result changes.

    ```mlir
    %y = mpt.relu %n : tensor<256x64x56x56xf16>                 // %n from %x; a convolution reads %y
    %g = mpt.relu_backward %dy, %y : tensor<256x64x56x56xf16>   // its sums with %x, and after them again
    // becomes, before the sums and after them
    %m = mpt.relu %n : tensor<256x64x56x56xf16>
    %g = mpt.relu_backward %dy, %m : tensor<256x64x56x56xf16>
    ```
  }];
  let statistics = [Statistic<"numRematerialized", "rematerialized", "ops computed once more">];
}

def WidenOperands : Pass<"fusion-widen-operands", "::mlir::ModuleOp"> {
  let summary = "8-bit operands that no library call takes become FP16 where they are made";
  let description = [{
    In: core ops after fusion-rematerialize. Out: convolutions, and GEMMs whose 8-bit operands the libraries do not take, have
    FP16 operands, which hold every value of the 8-bit types. The conversion lies where the value is made, so that fusion-form
    has one kernel quantize and widen: what nothing else reads is never stored in 8 bits. Values of the forward pass are
    widened once more for the backward pass, and kept in 8 bits until then. No bit of a result changes.

    ```mlir
    %q = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<8x16x9x9xf32> to tensor<8x16x9x9xf8E5M2>
    %d = mpt.conv_backward_data %q, %w {...} : (tensor<8x16x9x9xf8E5M2>, tensor<16x4x3x3xf16>) -> tensor<8x4x9x9xf32>
    // becomes
    %q = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<8x16x9x9xf32> to tensor<8x16x9x9xf8E5M2>
    %h = mpt.cast %q : tensor<8x16x9x9xf8E5M2> to tensor<8x16x9x9xf16>
    %d = mpt.conv_backward_data %h, %w {...} : (tensor<8x16x9x9xf16>, tensor<16x4x3x3xf16>) -> tensor<8x4x9x9xf32>
    ```
  }];
  let options = [Option<"nativeFloat8", "native-float8", "bool", "false", "GEMMs of 8-bit operands run as such where their extents allow it">];
  let statistics = [Statistic<"numWidened", "widened", "conversions to FP16">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def CompactTables : Pass<"fusion-compact-tables", "::mlir::ModuleOp"> {
  let summary = "the gradient of an embedding keeps the rows that a batch has read, not the table";
  let description = [{
    In: core ops after fusion-decompose. Out: updates of a table with at least two rows for each index are summed in a tensor with a row an
    index. A row of the table is looked up there by what reads it: sums with other gradients of the table, checks and
    updates. Each of these computes the sum for itself, so that no tensor of the table's size is written. Updates of one row
    are summed in their order, as before: no bit of a result changes.

    ```mlir
    %g = mpt.scatter_add %ids, %dy {axis = 0 : i64} : (tensor<512xi64>, tensor<512x768xf32>) -> tensor<50257x768xf32>
    // becomes
    %place = mpt.scatter_elements %none, %ids, %iota {axis = 0 : i64} : ... -> tensor<50257xi32>
    %own = mpt.gather %place, %ids {axis = 0 : i64} : ... -> tensor<512xi32>
    %sums = mpt.scatter_add %own, %dy {axis = 0 : i64} : ... -> tensor<512x768xf32>
    %rows = mpt.gather %sums, %place {axis = 0 : i64} : ... -> tensor<50257x768xf32>
    %g = mpt.select %is_read, %rows, %zeros : tensor<50257x768xi1>, tensor<50257x768xf32>
    ```
  }];
  let statistics = [Statistic<"numTables", "tables", "gradients of tables that keep few rows">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def KeyStreams : Pass<"fusion-key-streams", "::mlir::ModuleOp"> {
  let summary = "random streams as data, so that ops which differ in their stream alone share a kernel";
  let description = [{
    In: core ops. Out: where ops with one key have different streams, these lie in a table of keys with the stream in the
    upper half of the step, which the generator adds to an op's own stream; each op reads its row and has stream 0. No
    random bit changes for steps below 2^32.

    ```mlir
    %q = mpt.cast %x key %k : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 7 : i64} : ...
    // becomes, with one table for all streams of %k
    %all = mpt.add %broadcast_of_k, %streams : tensor<16x2xi64>
    %row = mpt.slice %all {...} : tensor<16x2xi64> to tensor<1x2xi64>
    %own = mpt.reshape %row : tensor<1x2xi64> to tensor<2xi64>
    %q = mpt.cast %x key %own : tensor<2xi64> {rounding = #mpt<rounding stochastic>} : ...
    ```
  }];
  let statistics = [Statistic<"numStreams", "streams", "streams in tables">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def Form : Pass<"fusion-form", "::mlir::ModuleOp"> {
  let summary = "group ops with loop forms into kernels";
  let description = [{
    In: core ops. Out: every op with a loop form is inside an `mpt.fusion`, except views (reshape, transpose, slice), concat
    and constants. Producers join consumers as long as the group has one iteration space, no value leaves and comes back,
    and every result can be written in one pass: elementwise chains; a reduction with what feeds it and, when it is over
    whole rows, what uses it; scalar arithmetic of all kinds together. Cheap values (casts, broadcasts, arithmetic with one
    full-size operand) are rematerialized for each reader instead of being kept in memory.

    The options say what the target's schedules can do. With `column-outputs`, sums over columns share a kernel with elements
    of the same pass that are written. With `kept-rows`, a row's gradient is computed with the row's sums, as that of a loss
    by rows. With `bundles`, what only state needs (optimizer updates with unscaling, clipping, masters, narrow copies)
    becomes a few kernels over all parameters: updates that differ in nothing but shape are one fusion, up to 200 operands
    and results.
  }];
  let options = [Option<"separate", "separate", "bool", "false", "a kernel for each op, so that every value is in memory: for --debug-nonfinite">,
    Option<"sharedSums", "shared-sums", "bool", "false", "the threads of a kernel share one sum among them">,
    Option<"columnOutputs", "column-outputs", "bool", "false", "a pass down columns writes elements beside their sums">,
    Option<"keptRows", "kept-rows", "bool", "false", "a team of threads keeps a row for what follows from its sums">,
    Option<"bundles", "bundles", "bool", "false", "one kernel serves many tensors that are treated alike">,
    Option<"memoryBound", "memory-bound", "bool", "false", "passes are joined only where they share a large tensor">];
  let statistics = [
    Statistic<"numKernels", "kernels", "fusions made">,
    Statistic<"bytesRead", "bytes-read", "bytes that the kernels read, each input once">,
    Statistic<"bytesWritten", "bytes-written", "bytes that the kernels write">
  ];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def VerifyAccumulators : Pass<"fusion-verify-accumulators", "::mlir::ModuleOp"> {
  let summary = "refuse a module in which fusion or libraries narrowed a sum";
  let description = [{
    In: a module of stage fusion or library. Out: the same, or an error for each of:
    - an accumulator narrower than the policy's, or none stated on narrow inputs under a policy (FP32 without one);
    - sums that are rounded to less than the type of the result;
    - a contraction whose accumulator no runtime has: FP32, or FP64 of FP64 operands;
    - a GEMM that one of `tensor-cores` would add up in less than FP32, beyond partial sums of 128 products;
    - an op with a kernel of its own, which adds up in its result's memory, whose result is narrower than its accumulator.

    Formed a second time by other passes, a sum may lose what phase precision said of it; this pass looks again.

    ```mlir
    %y = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<4096xbf16>) -> tensor<bf16>  // refused under a policy
    %y = mpt.reduce sum %x {axes = array<i64: 0>, numerics = #mpt.numerics<in = bf16, acc = f32, out = bf16>} : ...
    ```
  }];
  let options = [ListOption<"tensorCores", "tensor-cores", "std::string", "that compute the contractions, named as in mpt-run --as">];
}

def VerifyScales : Pass<"fusion-verify-scales", "::mlir::ModuleOp"> {
  let summary = "refuse a module in which fusion or libraries lost, doubled or added a scale";
  let description = [{
    In: a module of stage fusion or library. Out: the same, or an error for each value that is written to a state, or returned,
    with a scale on it, or with one that is not known. Scale types (docs/scale-types.md) are inferred again by the rules that
    precision-verify uses, through the bodies of fusions and through library calls. Scales are the states that hold them, and results of
    ops that fusion-lower-train marked `train.scale`.

    A constant scale, as `--loss-scale=NUMBER` gives, is a number like any other by now, and is not seen.

    ```mlir
    %s = train.read @mpt.loss_scale : tensor<f32>
    %g = mpt.fusion(%dy, %s) ... { ... %0 = mpt.mul %dy, %scale ... }  // carries mpt.loss_scale
    train.write @w, %g : tensor<4xf32>                                 // refused: not divided by it
    ```
  }];
}

#endif
