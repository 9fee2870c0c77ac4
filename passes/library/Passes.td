// SPDX-License-Identifier: Apache-2.0
// Passes of the library stage. Flag, class, file and test share one name: --library-<name>, <Name>.cpp, test/passes/library/<name>.mlir.
#ifndef MPT_PASSES_LIBRARY_PASSES_TD
#define MPT_PASSES_LIBRARY_PASSES_TD

include "passes/PassBase.td"

def ChainGemms : Pass<"library-chain-gemms", "::mlir::ModuleOp"> {
  let summary = "GELU, its gradient and bias gradients become epilogues of the GEMMs beside them";
  let description = [{
    In: core ops before composites are decomposed. Out: `library.gemm` in three places. A GEMM applies the tanh-GELU behind it and
    its bias, and keeps the sum before the activation if that has other readers. A GEMM that makes an activation's gradient multiplies it
    by the slope of GELU at that sum. A GEMM that contracts a 16-bit matrix along its columns sums the columns, too. Other passes see
    library calls and leave them alone.

    GELU is taken where library calls alone read it, and its gradient where the activation was; a sum where no kernel
    passes over the matrix anyway. cuBLASLt stores sums in the type of the result. Where FP32 is wanted beside a 16-bit result,
    conversions to FP32 must be its only readers; it is stored in FP32 then, if it is small beside the matrix. FP32 matrices keep
    the FP64 sums of kernels. The result is not rounded before the activation, nor before its conversion to FP32.

    ```mlir
    %s = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<8192x64xbf16>) -> tensor<64xf32>
    %w = mpt.matmul %dy, %x {transpose_a = true} : (tensor<8192x64xbf16>, tensor<8192x32xbf16>) -> tensor<64x32xbf16>
    %d = mpt.cast %w : tensor<64x32xbf16> to tensor<64x32xf32>
    // becomes
    %d, %s = library.gemm %dy, %x {epilogue = #library.epilogue<sum = a>, transpose_a = true}
      : tensor<8192x64xbf16>, tensor<8192x32xbf16> -> tensor<64x32xf32> sums tensor<64xf32>
    ```
  }];
  let options = [Option<"columnUnit", "column-unit", "int64_t", "1", "what the columns that epilogues exchange are multiples of">];
  let statistics = [Statistic<"numChained", "chained", "activations, gradients and sums that GEMMs compute">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def RoundOperands : Pass<"library-round-operands", "::mlir::ModuleOp"> {
  let summary = "GEMMs and gathers of rounded parameters read the FP32 values and round them";
  let description = [{
    In: core ops after composites are decomposed. Out: where a parameter is read in FP32 and rounded to FP16 or BF16, and matrix
    multiplications and ops that pick elements are all that read the result, these read the parameter as it is. A multiplication
    becomes a `library.gemm` with `read_as`, which rounds while it packs; what is picked is rounded afterwards. No bit of a
    result changes, and nothing keeps the rounded tensor.

    ```mlir
    %w = train.read @w : tensor<16x8xf32>
    %n = mpt.cast %w : tensor<16x8xf32> to tensor<16x8xf16>
    %y = mpt.matmul %x, %n {transpose_b = true} : (tensor<4x8xf16>, tensor<16x8xf16>) -> tensor<4x16xf16>
    // becomes
    %w = train.read @w : tensor<16x8xf32>
    %y = library.gemm %x, %w {read_as = f16, transpose_b = true}
      : tensor<4x8xf16>, tensor<16x8xf32> -> tensor<4x16xf16>
    ```
  }];
  let statistics = [Statistic<"numTaken", "taken", "roundings of parameters that their readers took in">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def ConvertCalls : Pass<"library-convert-calls", "::mlir::ModuleOp"> {
  let summary = "every matrix multiplication and convolution becomes a call of the library";
  let description = [{
    In: functions of fusions, views and library operations. Out: `library.gemm` in the place of each `mpt.matmul`, without an
    epilogue, and `library.conv` in the place of each `mpt.conv` and its gradients, without sums. The passes that follow put
    what is around them into the calls.

    ```mlir
    %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
    // becomes
    %y = library.gemm %a, %b {transpose_b = true} : tensor<4x8xf32>, tensor<16x8xf32> -> tensor<4x16xf32>
    ```
  }];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def FoldScales : Pass<"library-fold-scales", "::mlir::ModuleOp"> {
  let summary = "multiplications by scalars around a GEMM become its scales";
  let description = [{
    In: `library.gemm` and fusions. Out: three kinds of scales in GEMMs, each where the library applies it (options). Every scale
    multiplies the GEMM's FP32 sums: with 16-bit types that is one rounding less.

    - `alpha`: fusions that multiply an operand or the result by a constant, through views.
    - operand scales: one that multiplies an FP32 result of 8-bit operands by two FP32 scalars, and rounds it or not.
    - result scale: one that multiplies an FP32 result of f16 operands by an FP32 scalar, and rounds it to f16; or one as above, whose
      two scalars are multiplied first.

    ```mlir
    %y = library.gemm %a, %b : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf32>
    %r = mpt.fusion(%f, %y) ... // f16 of %y * %f
    // becomes, with result-scales
    %r = library.gemm %a, %b scale %f : tensor<f32> : tensor<2x4xf16>, tensor<4x8xf16> -> tensor<2x8xf16>
    ```
  }];
  let options = [
    Option<"alphaScales", "alpha-scales", "bool", "false", "constants become alpha">,
    Option<"operandScales", "operand-scales", "bool", "false", "the library multiplies 8-bit operands and scales them">,
    Option<"resultScales", "result-scales", "bool", "false", "the library reads a scale of results from memory">
  ];
  let statistics = [Statistic<"numFolded", "folded", "fusions that became scales">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def FoldEpilogues : Pass<"library-fold-epilogues", "::mlir::ModuleOp"> {
  let summary = "a bias, and ReLU behind it, become the epilogue of a GEMM";
  let description = [{
    In: `library.gemm` and fusions. Out: where a fusion alone reads a GEMM's result and first adds a vector along the columns, the
    GEMM adds it; it applies a ReLU that directly follows, too. A fusion that is left with nothing to do goes. With 16-bit types the GEMM
    rounds as the ops do: after multiplying and after each step (`round`).

    ```mlir
    %y = library.gemm %x, %w : tensor<2x4xf32>, tensor<4x8xf32> -> tensor<2x8xf32>
    %r = mpt.fusion(%y, %b) ... // relu(%y + %b)
    // becomes
    %r = library.gemm %x, %w bias %b : tensor<8xf32> {epilogue = #library.epilogue<activation = relu>} : ...
    ```
  }];
  let options = [
    Option<"biasThroughReshape", "bias-through-reshape", "bool", "false", "look for the bias behind a reshape that keeps the columns">
  ];
  let statistics = [Statistic<"numFolded", "folded", "biases that GEMMs add">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def ScheduleUpdates : Pass<"library-schedule-updates", "::mlir::ModuleOp"> {
  let summary = "each update of a state moves to where its gradient is there and the old value has been read";
  let description = [{
    In: functions after fusion-form. Out: the same ops in another order. An `mpt.fusion` whose results become states, small
    side results aside, runs right after the last op that it has to wait for: the makers of its operands, and the readers of the
    states' old values. A gradient then need not live to the end of the step, and the update can write over the old value. The sum
    of an accumulator that the step empties, and of a gradient, counts as an update: it may lie in the accumulator's memory.
  }];
  let statistics = [Statistic<"numMoved", "moved", "updates that run earlier">];
}

def VerifyUpdates : Pass<"library-verify-updates", "::mlir::ModuleOp"> {
  let summary = "fails when a GEMM, a convolution or a kernel runs between an update and the last op that it waits for";
  let description = [{
    In: functions after library-schedule-updates. Where nothing but its own gradient holds an update back, the gradient's memory is
    free for the next one. Clipping by norm, a finite check and a second gradient of the same parameter hold it back.
  }];
}

def FuseChannelSums : Pass<"library-fuse-channel-sums", "::mlir::ModuleOp"> {
  let summary = "for a GPU: convolutions leave the sums that batch norms and their gradients want";
  let description = [{
    In: core ops before composites are decomposed. Out: where a batch norm normalizes the 16-bit result of a convolution, a `library.conv
    forward` leaves the sums of its elements and of their squares. The norm is decomposed: its mean and mean square R of each channel
    are `select(sound, from the given sums, R)`. `sound` holds for a channel where the variance that the FP32 sums give is at least 1/32
    of the mean square, so that it keeps its digits. Kernels make R only where it does not. Sums that the library did not leave are NaN,
    which is never sound.

    Where the gradient of a batch norm is masked by the ReLU behind it, and a convolution makes that gradient for it alone, a `library.conv
    backward_data` has the norm's five parts as operands and two sums as results: of the masked gradient, and of its product with
    the normalized input. Sums R of the decomposed gradient become `select(sums are no NaN, from the sums, R)`. The library masks by the
    norm's result in FP32, kernels by what it is rounded to. They differ for results that round to 0, or whose sign is that of a rounding.
  }];
  let options = [Option<"channelUnit", "channel-unit", "int64_t", "1", "what channels are multiples of">,
    Option<"codeAll", "code-all", "bool", "false", "activations of all nodes may wait as codes, as under fusion-code-activations">];
  let statistics = [Statistic<"numFused", "fused", "convolutions that leave sums">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def ChooseLayouts : Pass<"library-choose-layouts", "::mlir::ModuleOp"> {
  let summary = "chooses the order of dimensions in which each value lies in memory";
  let description = [{
    In: functions after fusion-form. Out: ops whose results are not row-major carry `library.layouts`, one `#library.layout` a
    result: its dimensions from the outermost to the innermost. Ops say through `LayoutPreference` what they want of their
    operands (asked from the last op to the first) and what they give (from the first to the last). Convolutions take and give
    channels-last data, reshapes want row-major operands, elementwise kernels keep the layout of what they read, and GEMMs write
    rows of unit stride. Views carry nothing: bufferization derives their strides from their operand's.
  }];
  let statistics = [Statistic<"numChosen", "chosen", "ops with a result that is not row-major">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def CountTraffic : Pass<"library-count-traffic", "::mlir::ModuleOp"> {
  let summary = "notes on each function the least bytes that its kernels must move";
  let description = [{
    In: functions after the other passes of stage library. Out: functions carry `mpt.traffic`, two lower bounds of the bytes that the
    work between library calls reads and writes. The first holds for any way to form kernels that keeps the calls and the named
    values; the second is the same where a sum over more than a multiprocessor's shared memory holds ends a kernel. Functions of
    more than 20,000 ops get none: the bookkeeping is quadratic.
  }];
  let options = [
    Option<"sharedBytes", "shared-bytes", "int64_t", "0", "shared memory of a multiprocessor; no sum ends a kernel if 0">,
    Option<"sectorBytes", "sector-bytes", "int64_t", "0", "what memory moves for an element without neighbours">
  ];
}

def SplitHeads : Pass<"library-split-heads", "::mlir::ModuleOp"> {
  let summary = "for a GPU: attention between joined heads or moved dimensions, as one of [batch, heads, queries, keys]";
  let description = [{
    In: core ops after phase precision, with softmax and its gradient. Out: batches of GEMMs beside a softmax have two dimensions
    where a reshape joins these into one, and reshapes between GEMMs and softmax are gone. Exporters of backward passes write
    [batch * heads, tokens, depth] around each multiplication of batches. Transposes between go behind the softmax where its other
    operands repeat or are constant, a softmax along the last dimension but one becomes one along the last, and probabilities
    become the first operand of their GEMM.

    Ops keep their attributes, values their bits. Only GEMMs beside a softmax and what lies between change, so that
    `library-form-attention` finds them.
  }];
  let statistics = [Statistic<"numSplit", "split", "GEMMs whose batch became batch and heads">];
  let dependentDialects = ["::mpt::MPTDialect"];
}

def FormAttention : Pass<"library-form-attention", "::mlir::ModuleOp"> {
  let summary = "for a GPU: attention and its gradients as one call each";
  let description = [{
    In: core ops after phase precision. Out: where a softmax over keys lies between two GEMMs of 16-bit operands,
    `library.attention` computes the second GEMM's result, and `library.attention_gradient` what the backward pass makes of it.
    Scores and probabilities are not kept: the backward pass has them rematerialized from each row's log of the sum of
    exponentials. Scales before, between and after become one; masks become `causal` or a bias that does not repeat. They are
    recognized by their values where these follow from constants, however they were written. Dropout of the probabilities becomes
    a part of both calls, which draw the same numbers.

    The old path stays where anything else reads scores or probabilities (gradients of masks), where operands are not
    all FP16 or all BF16, or where the call does not take the depth. Scores are not rounded to 16 bits in between,
    and a row without any key gives 0 (`mpt.softmax` gives NaN).
  }];
  let options = [
    Option<"mostDepth", "most-depth", "int64_t", "0", "largest depth that the call takes; any if 0">,
    Option<"depthUnit", "depth-unit", "int64_t", "1", "what depths are multiples of">
  ];
  let statistics = [
    Statistic<"numFused", "fused", "attentions as one call">,
    Statistic<"numGradients", "gradients", "of these, with their gradients">
  ];
  let dependentDialects = ["::mpt::MPTDialect", "::mpt::library::LibraryDialect"];
}

def GroupQueries : Pass<"library-group-queries", "::mlir::ModuleOp"> {
  let summary = "for a GPU: heads that share keys and values read them unrepeated";
  let description = [{
    In: functions after library-form-attention. Out: where keys and values of `library.attention` are repeated for as many heads of
    queries as share them (arXiv 2305.13245), the call takes them as they were before. Its gradients of keys and values then are
    sums over these heads, which the reductions behind them made before.

    A repetition is a broadcast along a dimension of its own that joins the heads, or along the heads themselves; transposes, casts,
    factors and reshapes may lie between. The call stays as it is where the gradients' sums are not found.
  }];
  let statistics = [Statistic<"numGrouped", "grouped", "attentions with shared keys and values">];
  let dependentDialects = ["::mpt::MPTDialect", "::mpt::library::LibraryDialect"];
}

#endif
