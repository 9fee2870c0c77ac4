// SPDX-License-Identifier: Apache-2.0
// Requests for gradients, as files make them; differentiation answers them. Apart from TrainOps.td because few files use them.
#ifndef MPT_DIALECT_TRAIN_REQUESTOPS_TD
#define MPT_DIALECT_TRAIN_REQUESTOPS_TD

include "mpt/Dialect/Train/TrainBase.td"

def Train_DeriveOp : Train_Op<"derive", [Pure, AttrSizedOperandSegments]> {
  let summary = "request: derivatives of y with respect to each of xs";
  let description = [{
    Operator Gradient of ai.onnx.preview.training: result i is the derivative of the sum of y's elements with respect to
    `xs[i]`, in its type, y being a function of `xs` and `held`: no derivative goes through what computes them. What
    makes y of them stands before the request in the same block. `training-derive` and `training-algorithms` put the
    backward pass in its place. C1: as many results as xs, each of its type.
  }];
  let arguments = (ins Train_Float:$y, Variadic<Train_Float>:$xs, Variadic<Train_Number>:$held);
  let results = (outs Variadic<Train_Float>:$gradients);
  let assemblyFormat = "$y `of` `(` $xs `)` (`holding` `(` $held^ `)`)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif
