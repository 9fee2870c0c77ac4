// SPDX-License-Identifier: Apache-2.0
// Convolution family: convolutions whose call leaves sums by channel beside its result.
#ifndef MPT_DIALECT_LIBRARY_CONVOPS_TD
#define MPT_DIALECT_LIBRARY_CONVOPS_TD

include "mpt/Dialect/Library/LibraryBase.td"

defvar libraryWindow = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_low,
  DenseI64ArrayAttr:$pads_high, I64Attr:$groups, OptionalAttr<MPT_NumericsAttr>:$numerics);

def Library_ConvOp : Library_Op<"conv", "Contraction"> {
  let summary = "mpt.conv as a library call that may leave moments of its result by channel";
  let description = [{
    `y` is that of `mpt.conv`. `sums` are two vectors: over all positions of a channel, the sum of y's elements and the sum of their
    squares, in FP32. Where the library does not gather them on the way, every element of both is NaN.

    C1: x, w, y and the attributes satisfy mpt.conv's constraints. C2: there are no sums or two of them, each FP32 [channels of y].

    ```mlir
    %y, %sums:2 = library.conv %x, %w {groups = 1 : i64, ...} : tensor<4x8x16x16xf16>, tensor<64x8x3x3xf16>
      -> tensor<4x64x16x16xf16> sums tensor<64xf32>, tensor<64xf32>
    ```
  }];
  let arguments = !con((ins MPT_Float:$x, MPT_Float:$w), libraryWindow);
  let results = (outs MPT_Float:$y, Variadic<MPT_Float>:$sums);
  let assemblyFormat = "$x `,` $w attr-dict `:` type($x) `,` type($w) `->` type($y) (`sums` type($sums)^)?";
  let hasVerifier = 1;
}
def Library_ConvBackwardDataOp : Library_Op<"conv_backward_data", "Contraction"> {
  let summary = "mpt.conv_backward_data as a library call that may leave sums for the gradient of a batch norm";
  let description = [{
    `norm` is input, mean, 1/deviation, scale and shift of the batch norm whose result, through a ReLU, is the convolution's
    operand. With n = (input - mean) / deviation and g = dx where n * scale + shift > 0, else 0, `sums` are two FP32 vectors: the
    sums of g and of g * n by channel, or NaN in every element of both where the library does not gather them. `dx` is that of
    `mpt.conv_backward_data` or g: every reader masks it.

    C1: dy, w, dx and the attributes satisfy mpt.conv_backward_data's constraints. C2: there are no sums or two of them, each FP32
    [channels of dx]. C3: there are five parts of a norm beside sums, else none. C4: the norm's input has dx's type, its other
    parts are FP32 [channels of dx].
  }];
  let arguments = !con((ins MPT_Float:$dy, MPT_Float:$w, Variadic<MPT_Float>:$norm), libraryWindow);
  let results = (outs MPT_Float:$dx, Variadic<MPT_Float>:$sums);
  let assemblyFormat = [{
    $dy `,` $w (`norm` $norm^ `:` type($norm))? attr-dict `:` type($dy) `,` type($w) `->` type($dx) (`sums` type($sums)^)?
  }];
  let hasVerifier = 1;
}

#endif
