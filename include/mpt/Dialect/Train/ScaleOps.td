// SPDX-License-Identifier: Apache-2.0
// Scale arithmetic beyond one loss scale: floors, scales of layers, scales of 8-bit tensors. Apart from TrainOps.td because
// few files use them.
#ifndef MPT_DIALECT_TRAIN_SCALEOPS_TD
#define MPT_DIALECT_TRAIN_SCALEOPS_TD

include "mpt/Dialect/Train/TrainBase.td"

def Train_RescaleOp : Train_Op<"rescale", [Pure]> {
  let summary = "a gradient that carries scale `from`, times to / from: from here on it carries `to`";
  let description = [{The product is made in FP32 and rounded once to the result's type.}];
  let arguments = (ins Train_Float:$gradient, Train_Float:$from, Train_Float:$to);
  let results = (outs Train_Float:$result);
  let assemblyFormat = "$gradient `,` $from `to` $to attr-dict `:` functional-type(operands, results)";
}
def Train_FloorScaleOp : Train_Op<"floor_scale", [Pure]> {
  let summary = "next scale, kept above the floor of its step (arXiv 1905.12334) as long as steps get through";
  let description = [{
    Scalars: `next` and `scale`, FP32, are what train.update_scale made and read; `steps` (i32) counts the calls so far;
    `hysteresis_left` (i32) is its new count, of which `hysteresis` - hysteresis_left is the number of steps in a row that
    were not finite. The floor is the last of `floors` whose entry in `floor_steps`, which ascend, is not above steps + 1.
    The result is max(next, floor) in the call where that floor begins, and while scale is not below it and fewer than
    `patience` steps in a row were not finite; else it is `next`. So a floor that a model cannot bear gives way, and the
    scale rises from there as a dynamic scale does.
  }];
  let arguments = (ins Train_Float:$next, Train_Float:$scale, Train_Int:$steps, Train_Int:$hysteresis_left,
    DenseI64ArrayAttr:$floor_steps, DenseF64ArrayAttr:$floors, I64Attr:$hysteresis, I64Attr:$patience);
  let results = (outs Train_Float:$new_scale);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

// ---- layer-wise adaptive scales (arXiv 1910.12385)
def Train_MomentsOp : Train_Op<"moments", [Pure]> {
  let summary = "FP32 scalars over all elements: mean of squares, largest magnitude";
  let arguments = (ins Train_Float:$x);
  let results = (outs Train_Float:$square, Train_Float:$max);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}
def Train_LogMomentsOp : Train_Op<"log_moments", [Pure]> {
  let summary = "FP32 scalars: mean and mean of squares of ln |x| over non-zero elements (0 without any), and largest |x|";
  let arguments = (ins Train_Float:$x);
  let results = (outs Train_Float:$mean, Train_Float:$square, Train_Float:$max);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, results)";
}
def Train_LayerScaleOp : Train_Op<"layer_scale", [Pure]> {
  let summary = "factor for the gradient that a product makes of g, which gained `gain` since it was first rounded, and w";
  let description = [{
    Takes the moments (train.moments) of both factors; a result sums `terms` products. sigma^2 = E[g^2] E[w^2], times
    terms / 2 with spread "sum". low = max(1, smallest / (T sigma)), T = sqrt(2) erfinv(underflow): a normal result of that
    spread falls below `smallest` with probability `underflow`. high = (largest / terms) / (max |g| max |w|). `gain` is the
    product of the layers' factors on the way from where g was first rounded: what the loss is multiplied by does not
    count. The result is min(low, high, layer_max, total_max / gain), down to a power of two; 1 where sigma is 0 or that
    is not a positive finite number.
  }];
  let arguments = (ins Train_Float:$g_square, Train_Float:$g_max, Train_Float:$w_square, Train_Float:$w_max,
    Train_Float:$gain, I64Attr:$terms, StrAttr:$spread, F64Attr:$underflow, F64Attr:$smallest, F64Attr:$largest,
    F64Attr:$layer_max, F64Attr:$total_max);
  let results = (outs Train_Float:$factor);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = [{
    double getReach();
    static constexpr ::llvm::StringLiteral state = "mpt.layer_scales"; // factors kept for several steps
  }];
}
def Train_CastScaleOp : Train_Op<"cast_scale", [Pure]> {
  let summary = "factor for a gradient that is about to be rounded to a narrower type";
  let description = [{
    Takes train.log_moments of the gradient. ln |g| is taken for normal: low = smallest / exp(mu + sigma sqrt(2) erfinv(2
    underflow - 1)) lifts all but a share `underflow` above `smallest`. high = largest / (headroom max |g|): what
    follows may make the gradient larger before the next GEMM looks at it. The result is min(max(1, low), high), down to a power of
    two; 1 where it is not a positive finite number.
  }];
  let arguments = (ins Train_Float:$mean, Train_Float:$square, Train_Float:$max, F64Attr:$underflow, F64Attr:$smallest,
    F64Attr:$largest, DefaultValuedAttr<F64Attr, "256.0">:$headroom);
  let results = (outs Train_Float:$factor);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let extraClassDeclaration = [{ double getQuantile(); }];
}
def Train_MergeScaleOp : Train_Op<"merge_scale", [Pure, AttrSizedOperandSegments]> {
  let summary = "common scale of gradients that meet";
  let description = [{
    Of `scales`, the largest with which every gradient's largest magnitude (`maxima`, carrying its own scale) stays below
    `largest`; where none fits, the largest power of two with which all are at most `largest` (1 where they are not finite). C1: as many scales as maxima, at least two.
  }];
  let arguments = (ins Variadic<Train_Float>:$scales, Variadic<Train_Float>:$maxima, F64Attr:$largest);
  let results = (outs Train_Float:$scale);
  let assemblyFormat = "`(` $scales `)` `maxima` `(` $maxima `)` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

// ---- scales of 8-bit tensors
def Train_TensorScaleOp : Train_Op<"tensor_scale", [Pure, AllTypesMatch<["amax", "previous", "scale"]>]> {
  let summary = "scale that brings magnitudes up to `amax` into a format's range, element by element";
  let description = [{
    scale = largest 2^-margin / amax, rounded down to a power of two, of at most 2^100, if asked. `previous` stays where amax is 0, infinite or
    NaN; a quotient beyond FP32 becomes its largest value.
  }];
  let arguments = (ins Train_Float:$amax, Train_Float:$previous, F64Attr:$largest, DefaultValuedAttr<I64Attr, "0">:$margin,
    DefaultValuedAttr<BoolAttr, "false">:$power_of_two);
  let results = (outs Train_Float:$scale);
  let assemblyFormat = "$amax `,` $previous attr-dict `:` type($scale)";
}
def Train_RollOp : Train_Op<"roll", [Pure, AllTypesMatch<["history", "result"]>]> {
  let summary = "history [K, N] with `newest` [K] in front of each row and its oldest entry dropped";
  let description = [{A row whose newest entry is 0 stays as it is: the tensor was not computed, or says nothing.}];
  let arguments = (ins Train_Float:$history, Train_Float:$newest);
  let results = (outs Train_Float:$result);
  let assemblyFormat = "$history `,` $newest attr-dict `:` type($history) `,` type($newest)";
}

#endif
