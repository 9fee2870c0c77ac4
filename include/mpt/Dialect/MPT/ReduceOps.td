// SPDX-License-Identifier: Apache-2.0
// Reduce family: values over whole axes.
#ifndef MPT_DIALECT_MPT_REDUCEOPS_TD
#define MPT_DIALECT_MPT_REDUCEOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_ReduceOp : MPT_FlexibleOp<"reduce", "Reduction"> {
  let summary = "reduction over `axes`, which the result drops";
  let description = [{
    Accumulates in numerics' acc (FP32 for narrower floats when absent) and rounds once. mean divides the wide sum. max and
    min propagate NaN. Integers wrap, also in the sum of mean. C1: axes are ascending, unique and in range.
  }];
  let arguments = (ins MPT_Number:$x, MPT_ReduceKindAttr:$kind, DenseI64ArrayAttr:$axes, OptionalAttr<MPT_NumericsAttr>:$numerics);
  let results = (outs MPT_Number:$y);
  let assemblyFormat = "$kind $x attr-dict `:` functional-type(operands, results)";
}
def MPT_ArgReduceOp : MPT_InferredOp<"arg_reduce", "Movement"> {
  let summary = "i64 index of the largest (kind max) or smallest (kind min) value along `axis`, which the result drops";
  let arguments = (ins MPT_Number:$x, MPT_ReduceKindAttr:$kind, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$last);
  let results = (outs MPT_Int:$y);
}
def MPT_CumSumOp : MPT_InferredOp<"cum_sum", "Reduction"> {
  let summary = "running sum along `axis` (FP32 accumulation), optionally exclusive or from the far end";
  let arguments = (ins MPT_Number:$x, I64Attr:$axis, DefaultValuedAttr<BoolAttr, "false">:$exclusive,
    DefaultValuedAttr<BoolAttr, "false">:$reverse);
  let results = (outs MPT_Number:$y);
}

#endif
