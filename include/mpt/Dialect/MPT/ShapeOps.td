// SPDX-License-Identifier: Apache-2.0
// Shape family: constants and data movement. Exact in every type.
#ifndef MPT_DIALECT_MPT_SHAPEOPS_TD
#define MPT_DIALECT_MPT_SHAPEOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_ConstantOp : MPT_Op<"constant", "Movement", [ConstantLike, AllTypesMatch<["value", "y"]>]> {
  let summary = "constant tensor; large values are dense_resource blobs";
  let arguments = (ins ElementsAttr:$value);
  let results = (outs MPT_Number:$y);
  let builders = [
    OpBuilder<(ins "::mlir::RankedTensorType":$type, "double":$splat)>
  ];
  let assemblyFormat = "$value attr-dict";
  let hasFolder = 1;
}
def MPT_ReshapeOp : MPT_Op<"reshape", "Movement"> {
  let summary = "same elements in row-major order under another shape. C1: equal element counts and types";
  let arguments = (ins MPT_Number:$x);
  let results = (outs MPT_Number:$y);
  let hasVerifier = 1;
  let hasFolder = 1;
}
def MPT_TransposeOp : MPT_InferredOp<"transpose", "Movement"> {
  let summary = "y's dimension i is x's dimension permutation[i]";
  let arguments = (ins MPT_Number:$x, DenseI64ArrayAttr:$permutation);
  let results = (outs MPT_Number:$y);
  let hasFolder = 1;
}
def MPT_BroadcastOp : MPT_Op<"broadcast", "Movement"> {
  let summary = "x's dimension i becomes y's dimension dims[i]; extents of 1 repeat, other dimensions of y are new";
  let description = [{C1: dims are strictly ascending, one an x dimension. C2: each x extent is 1 or the y extent.}];
  let arguments = (ins MPT_Number:$x, DenseI64ArrayAttr:$dims);
  let results = (outs MPT_Number:$y);
  let hasVerifier = 1;
  let hasFolder = 1;
}
def MPT_ConcatOp : MPT_InferredOp<"concat", "Movement", [], "0", "0", "true"> {
  let summary = "inputs one after another along `axis`";
  let arguments = (ins Variadic<MPT_Number>:$inputs, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_SliceOp : MPT_InferredOp<"slice", "Movement"> {
  let summary = "y[i...] = x[start + i stride ...]; sizes are y's extents, strides are positive";
  let arguments = (ins MPT_Number:$x, DenseI64ArrayAttr:$starts, DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$strides);
  let results = (outs MPT_Number:$y);
  let hasFolder = 1;
}
def MPT_PadOp : MPT_InferredOp<"pad", "Movement"> {
  let summary = "x with `low`, `high` and between-element `interior` margins of `value`; negative low and high crop";
  let arguments = (ins MPT_Number:$x, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, DenseI64ArrayAttr:$interior, F64Attr:$value);
  let results = (outs MPT_Number:$y);
}
def MPT_ReverseOp : MPT_InferredOp<"reverse", "Movement"> {
  let summary = "order of elements turned round along `axes`";
  let arguments = (ins MPT_Number:$x, DenseI64ArrayAttr:$axes);
  let results = (outs MPT_Number:$y);
}
def MPT_IotaOp : MPT_Op<"iota", "Movement"> {
  let summary = "y[i...] = i along `axis`";
  let arguments = (ins I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}

#endif
