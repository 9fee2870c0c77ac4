// SPDX-License-Identifier: Apache-2.0
// Training family: gradients that a model states itself. Apart from MPTOps.td because few files use them.
#ifndef MPT_DIALECT_MPT_TRAININGOPS_TD
#define MPT_DIALECT_MPT_TRAININGOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_CotangentOp : MPT_InferredOp<"cotangent", "Movement"> {
  let summary = "stands for the gradient of a value in what mpt.custom_gradient states";
  let description = [{
    Differentiation computes what depends on it anew from the gradient that arrives. Anywhere else it is zeros.
  }];
  let arguments = (ins MPT_Float:$value);
  let results = (outs MPT_Float:$y);
}
def MPT_CustomGradientOp : MPT_InferredOp<"custom_gradient", "Movement", [AttrSizedOperandSegments]> {
  let summary = "values with a gradient of their own";
  let description = [{
    The results are `values`. Backward, nothing goes to `values`: operand i of `inputs` gets operand i of `gradients`, in
    which the gradients of the results stand for `cotangents`, one a value. Without inputs no gradient goes on at all.
    C1: there are as many cotangents as values where there are inputs, each of its value's type. C2: there are as many
    gradients as inputs, each of its input's shape.
  }];
  let arguments = (ins Variadic<MPT_Float>:$values, Variadic<MPT_Float>:$cotangents, Variadic<MPT_Float>:$inputs,
    Variadic<MPT_Float>:$gradients);
  let results = (outs Variadic<MPT_Float>:$results);
  let assemblyFormat = [{
    $values (`cotangents` $cotangents^)? (`inputs` $inputs^ `gradients` $gradients)? attr-dict
    `:` functional-type(operands, results)
  }];
}

#endif
