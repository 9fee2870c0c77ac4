// SPDX-License-Identifier: Apache-2.0
// Optimizer family: one parameter's update. All arithmetic is FP32 or wider; lr and step are scalars.
#ifndef MPT_DIALECT_MPT_OPTIMIZEROPS_TD
#define MPT_DIALECT_MPT_OPTIMIZEROPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_SGDOp : MPT_InferredOp<"sgd", "Pinned", [], "0b1111"> {
  let summary = "stochastic gradient descent, optionally with (Nesterov) momentum and weight decay";
  let description = [{
    g += weight_decay p; with a momentum slot: m' = momentum m + (1 - dampening) g (m' = g at step 1), g = nesterov ?
    g + momentum m' : m'; p' = p - lr g. lr is a scalar (FP32), step a scalar i64 counting from 1.
    C1: momentum is non-zero if and only if a slot is given.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, Optional<MPT_Float>:$slot,
    DefaultValuedAttr<F64Attr, "0.0">:$momentum, DefaultValuedAttr<F64Attr, "0.0">:$dampening,
    DefaultValuedAttr<BoolAttr, "false">:$nesterov, DefaultValuedAttr<F64Attr, "0.0">:$weight_decay);
  let results = (outs MPT_Float:$new_param, Variadic<MPT_Float>:$new_slots);
}
def MPT_AdamOp : MPT_InferredOp<"adam", "Pinned", [], "0b110111"> {
  let summary = "Adam (arXiv 1412.6980), and AdamW (arXiv 1711.05101) with decoupled weight decay";
  let description = [{
    g += weight_decay p unless decoupled; p -= lr weight_decay p if decoupled; m' = beta1 m + (1 - beta1) g;
    v' = beta2 v + (1 - beta2) g^2; p' = p - lr / (1 - beta1^step) m' / (sqrt(v') / sqrt(1 - beta2^step) + epsilon).
    step is a scalar i64 counting from 1.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, MPT_Float:$moment1, MPT_Float:$moment2,
    DefaultValuedAttr<F64Attr, "0.9">:$beta1, DefaultValuedAttr<F64Attr, "0.999">:$beta2,
    DefaultValuedAttr<F64Attr, "1.0e-8">:$epsilon, DefaultValuedAttr<F64Attr, "0.0">:$weight_decay,
    DefaultValuedAttr<BoolAttr, "false">:$decoupled);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_moment1, MPT_Float:$new_moment2);
}
def MPT_AdagradOp : MPT_InferredOp<"adagrad", "Pinned", [], "0b10111"> {
  let summary = "Adagrad (Duchi et al., JMLR 12, 2011)";
  let description = [{
    g += weight_decay p; h' = h + g^2; p' = p - lr / (1 + (step - 1) lr_decay) g / (sqrt(h') + epsilon).
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, MPT_Float:$accumulator,
    DefaultValuedAttr<F64Attr, "0.0">:$lr_decay, DefaultValuedAttr<F64Attr, "1.0e-10">:$epsilon,
    DefaultValuedAttr<F64Attr, "0.0">:$weight_decay);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_accumulator);
}

#endif
