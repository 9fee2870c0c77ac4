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
def MPT_GatherOp : MPT_InferredOp<"gather", "Movement"> {
  let summary = "slices of x along `axis` picked by `indices`, whose dimensions replace the axis; negative indices wrap";
  let arguments = (ins MPT_Number:$x, MPT_Int:$indices, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_ScatterAddOp : MPT_Op<"scatter_add", "Reduction"> {
  let summary = "adjoint of gather: zeros of the result type, plus each update slice at its index along `axis` (FP32 sums)";
  let arguments = (ins MPT_Int:$indices, MPT_Number:$updates, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_GatherElementsOp : MPT_InferredOp<"gather_elements", "Movement"> {
  let summary = "y[i...] = x at i... with position `axis` replaced by indices[i...]; negative indices wrap";
  let arguments = (ins MPT_Number:$x, MPT_Int:$indices, I64Attr:$axis);
  let results = (outs MPT_Number:$y);
}
def MPT_ScatterElementsOp : MPT_InferredOp<"scatter_elements", "Reduction"> {
  let summary = "data with updates[i...] combined at i... with position `axis` replaced by indices[i...]";
  let arguments = (ins MPT_Number:$data, MPT_Int:$indices, MPT_Number:$updates, I64Attr:$axis,
    DefaultValuedAttr<MPT_ScatterKindAttr, "::mpt::ScatterKind::assign">:$kind);
  let results = (outs MPT_Number:$y);
}
def MPT_GatherNDOp : MPT_InferredOp<"gather_nd", "Movement"> {
  let summary = "slices of x at the index tuples in the last dimension of `indices`, after batch_dims shared dimensions";
  let arguments = (ins MPT_Number:$x, MPT_Int:$indices, DefaultValuedAttr<I64Attr, "0">:$batch_dims);
  let results = (outs MPT_Number:$y);
}
def MPT_ScatterNDOp : MPT_InferredOp<"scatter_nd", "Reduction"> {
  let summary = "data with update slices combined at the index tuples in the last dimension of `indices`";
  let arguments = (ins MPT_Number:$data, MPT_Int:$indices, MPT_Number:$updates,
    DefaultValuedAttr<I64Attr, "0">:$batch_dims, DefaultValuedAttr<MPT_ScatterKindAttr, "::mpt::ScatterKind::assign">:$kind);
  let results = (outs MPT_Number:$y);
}
def MPT_RandomUniformOp : MPT_Op<"random_uniform", "Movement"> {
  let summary = "uniform values in [low, high) from Philox 4x32-10 keyed by key (tensor<2xi64>: seed, step) and stream";
  let arguments = (ins MPT_Int:$key, F64Attr:$low, F64Attr:$high, I64Attr:$stream);
  let results = (outs MPT_Float:$y);
}

#endif
