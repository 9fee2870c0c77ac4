// SPDX-License-Identifier: Apache-2.0
// GEMM family: a matrix multiplication with the epilogue of its library call.
#ifndef MPT_DIALECT_LIBRARY_GEMMOPS_TD
#define MPT_DIALECT_LIBRARY_GEMMOPS_TD

include "mpt/Dialect/Library/LibraryBase.td"

def Library_GemmOp : Library_Op<"gemm", "Contraction",
    [AttrSizedOperandSegments, AttrSizedResultSegments, DeclareOpInterfaceMethods<GemmLike>]> {
  let summary = "matrix multiplication with an epilogue, as one library call";
  let description = [{
    With op(x) = x, or x transposed in its last two dimensions where its flag says so, for each batch index:

    ```
    s = alpha * scale * operand_scales[0] * operand_scales[1] * sum over k of op(a)[i, k] op(b)[k, j]
    z = (round ? rounded(s) : s) + bias[j]          rounded: to d's element type
    d = activation(z)                               kept = z, if the epilogue keeps it
    d = s * activation'(aux)                        where the activation is a gradient
    ```

    Sums are FP32 (FP64 for FP64 operands; of 8-bit operands, partial sums of at most 128 products may have fewer bits, as Tensor
    Cores keep: mpt/Support/TensorCores.h); everything up to `d` and `kept` stays so, and both are rounded once. `sums` adds up
    op(a) [m] or op(b) [n] over k, or d [n] over its rows. Absent factors are 1; an absent bias is 0. With `read_as`, elements of
    FP32 operands are rounded to that type as they are read.

    C1: a and b have one rank of at least 2. C2: batch extents are equal. C3: contracted extents are equal. C4: d is
    [batch..., m, n]. C5: bias is [n] of d's element type. C6: operand scales are two FP32 scalars, or none. C7: a result
    scale is an FP32 scalar; it excludes every epilogue, a bias and operand scales. C8: aux, of d's type, goes with the gradient of an
    activation, and nothing else does. C9: kept, of d's type, goes with `keep`, and that with gelu_tanh. C10: sums go with `sum`,
    are [m] or [n] of d's element type, and belong to matrices without batch. C11: `sum` of a or b excludes a bias and activations; `sum` of
    d needs the gradient of an activation. C12: `round` needs a bias; the gradient of an activation excludes one. C13: `read_as`
    is f16 or bf16, an operand is f32, and the other one is either.

    ```mlir
    %d, %kept = library.gemm %x, %w bias %b : tensor<64xbf16> {epilogue = #library.epilogue<activation = gelu_tanh, keep = true>}
      : tensor<128x16xbf16>, tensor<16x64xbf16> -> tensor<128x64xbf16> kept tensor<128x64xbf16>
    ```
  }];
  let arguments = (ins MPT_Float:$a, MPT_Float:$b, Optional<MPT_Float>:$bias, Variadic<MPT_Float>:$operand_scales,
    Optional<MPT_Float>:$scale, Optional<MPT_Float>:$aux, DefaultValuedAttr<BoolAttr, "false">:$transpose_a,
    DefaultValuedAttr<BoolAttr, "false">:$transpose_b, DefaultValuedAttr<F64Attr, "1.0">:$alpha,
    OptionalAttr<Library_EpilogueAttr>:$epilogue, OptionalAttr<MPT_NumericsAttr>:$numerics,
    OptionalAttr<TypeAttr>:$read_as);
  let results = (outs MPT_Float:$d, Optional<MPT_Float>:$kept, Optional<MPT_Float>:$sums);
  let assemblyFormat = [{
    $a `,` $b (`bias` $bias^ `:` type($bias))? (`operand_scales` $operand_scales^ `:` type($operand_scales))?
    (`scale` $scale^ `:` type($scale))? (`aux` $aux^ `:` type($aux))? attr-dict `:` type($a) `,` type($b) `->` type($d)
    (`kept` type($kept)^)? (`sums` type($sums)^)?
  }];
  let builders = [
    // The computation of `matmul` as a library call: `form` decides which results there are beside `d`.
    OpBuilder<(ins "::mpt::MatMulOp":$matmul, CArg<"::mlir::Type", "{}">:$d, CArg<"EpilogueAttr", "{}">:$form,
      CArg<"::mlir::Value", "{}">:$bias, CArg<"::mlir::Value", "{}">:$aux)>
  ];
  let extraClassDeclaration = precisionMethods # [{
    /// The epilogue, also where none is given.
    EpilogueAttr getForm() {
      return getEpilogueAttr() ? getEpilogueAttr() : EpilogueAttr::none(getContext());
    }
    /// The epilogue is the gradient of an activation, at `aux`.
    bool isGradient() { return getForm().getActivation() == Activation::gelu_tanh_gradient; }
    /// The result goes through memory between two calls as it is: around activations, dense and row-major.
    bool exchangesDense() {
      return getForm().getKeep() || getAux() || getForm().getActivation() == Activation::gelu_tanh;
    }
    /// Builds core ops that compute the results; one value a result.
    ::llvm::SmallVector<::mlir::Value> expand(::mlir::OpBuilder &builder);
    /// Libraries multiply 8-bit matrices of these types as such: extents in sixteens, and not E5M2 both.
    static bool takesFloat8(::mlir::RankedTensorType a, ::mlir::RankedTensorType b);
  }];
  let hasVerifier = 1;
}

#endif
