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
  let statistics = [Statistic<"numChained", "chained", "activations, gradients and sums that GEMMs compute">];
  let dependentDialects = ["::mpt::library::LibraryDialect"];
}

def SelectGemms : Pass<"library-select-gemms", "::mlir::ModuleOp"> {
  let summary = "every matrix multiplication becomes a GEMM of the library";
  let description = [{
    In: functions of fusions, views and library operations. Out: `library.gemm` in the place of each `mpt.matmul`, without an
    epilogue. The passes that follow put what is around it into the call.

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
    - result scale: one that multiplies an FP32 result of f16 operands by an FP32 scalar, and rounds it to f16.

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
    Option<"resultScales", "result-scales", "bool", "false", "the library reads a scale of f16 results from memory">
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

#endif
