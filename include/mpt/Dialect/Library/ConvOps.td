// SPDX-License-Identifier: Apache-2.0
// Convolution family: a convolution and its gradients as one library call, which may leave sums by channel.
#ifndef MPT_DIALECT_LIBRARY_CONVOPS_TD
#define MPT_DIALECT_LIBRARY_CONVOPS_TD

include "mpt/Dialect/Library/LibraryBase.td"

def Library_ConvOp : Library_Op<"conv", "Contraction"> {
  let summary = "a convolution or one of its gradients as a library call that may leave sums by channel beside its result";
  let description = [{
    | kind | a | b | d is that of |
    |---|---|---|---|
    | `forward` | x | w | `mpt.conv` |
    | `backward_data` | dy | w | `mpt.conv_backward_data` |
    | `backward_weights` | x | dy | `mpt.conv_backward_weights` |

    `sums` are two FP32 vectors by channel, or NaN in every element of both where the library does not gather them on the way.
    Forward, they are the sums of d's elements and of their squares over all positions. Of `backward_data`, they are for the
    gradient of a batch norm, whose result, through a ReLU, is the convolution's x. `norm` has its input, mean, 1/deviation, scale
    and shift. With n = (input - mean) / deviation and g = dx where n * scale + shift > 0, else 0, `sums` are those of g and of
    g * n; d is dx or g: every reader masks it.

    C1: the three tensors and the attributes satisfy mpt.conv's constraints. C2: there are no sums or two of them, each FP32
    [channels of d]; `backward_weights` leaves none. C3: `backward_data` has five parts of a norm beside sums; otherwise there are
    none. C4: the norm's input has d's type, its other parts are FP32 [channels of d].

    ```mlir
    %y, %sums:2 = library.conv forward %x, %w {groups = 1 : i64, ...} : tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>
      -> tensor<4x64x16x16xf16> sums tensor<64xf32>, tensor<64xf32>
    ```
  }];
  let arguments = (ins Library_EnumAttr<Library_ConvKind, "conv_kind">:$kind, MPT_Float:$a, MPT_Float:$b,
    Variadic<MPT_Float>:$norm, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_low,
    DenseI64ArrayAttr:$pads_high, I64Attr:$groups, OptionalAttr<MPT_NumericsAttr>:$numerics);
  let results = (outs MPT_Float:$d, Variadic<MPT_Float>:$sums);
  let assemblyFormat = [{
    $kind $a `,` $b (`norm` $norm^ `:` type($norm))? attr-dict `:` type($a) `,` type($b) `->` type($d) (`sums` type($sums)^)?
  }];
  let builders = [OpBuilder<(ins "::mpt::ConvOp":$conv)>, OpBuilder<(ins "::mpt::ConvBackwardDataOp":$conv)>,
    OpBuilder<(ins "::mpt::ConvBackwardWeightsOp":$conv)>];
  let extraClassDeclaration = precisionMethods # [{
    /// The tensors by their part in y = conv(x, w); one of them, or its gradient, is d.
    ::mlir::Value getX() { return getKind() == ConvKind::backward_data ? getD() : getA(); }
    ::mlir::Value getW() { return getKind() == ConvKind::backward_weights ? getD() : getB(); }
    ::mlir::Value getY() {
      return getKind() == ConvKind::forward ? getD() : getKind() == ConvKind::backward_data ? getA() : getB();
    }
    /// Puts the same call with sums in the place of this one, which is erased; `norm` as C3 says.
    ConvOp replaceByCallWithSums(::mlir::ValueRange norm);
  }];
  let hasVerifier = 1;
}

#endif
