// SPDX-License-Identifier: Apache-2.0
// Further optimizers: one parameter's update each, as in OptimizerOps.td. Apart from MPTOps.td because few files use them.
#ifndef MPT_DIALECT_MPT_UPDATEOPS_TD
#define MPT_DIALECT_MPT_UPDATEOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_MomentumOp : MPT_InferredOp<"momentum", "Pinned", [], "0b1111"> {
  let summary = "momentum as ai.onnx.preview.training.Momentum defines it";
  let description = [{
    g += norm_coefficient p; m' = alpha m + (step > 0 ? beta : 1) g; p' = p - lr (nesterov ? g + alpha m' : m'). lr is a
    scalar; step a scalar i64, the number of finished steps.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, MPT_Float:$slot,
    F64Attr:$alpha, F64Attr:$beta, DefaultValuedAttr<BoolAttr, "false">:$nesterov,
    DefaultValuedAttr<F64Attr, "0.0">:$norm_coefficient);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_slot);
}
def MPT_AdamHatOp : MPT_InferredOp<"adam_hat", "Pinned", [], "0b110111"> {
  let summary = "Adam with an epsilon that is not corrected (arXiv 1412.6980, end of section 2)";
  let description = [{
    As ai.onnx.preview.training.Adam defines it: g += norm_coefficient p; m' = beta1 m + (1 - beta1) g;
    v' = beta2 v + (1 - beta2) g^2; rate = lr sqrt(1 - beta2^step) / (1 - beta1^step), or lr where step is not positive;
    q = (1 - norm_coefficient_post) (p - rate m' / (sqrt(v') + epsilon)); p' = q - lr late_decay q. lr is a scalar, step
    a scalar i64.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, MPT_Float:$moment1, MPT_Float:$moment2,
    DefaultValuedAttr<F64Attr, "0.9">:$beta1, DefaultValuedAttr<F64Attr, "0.999">:$beta2,
    DefaultValuedAttr<F64Attr, "1.0e-6">:$epsilon, DefaultValuedAttr<F64Attr, "0.0">:$norm_coefficient,
    DefaultValuedAttr<F64Attr, "0.0">:$norm_coefficient_post, DefaultValuedAttr<F64Attr, "0.0">:$late_decay);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_moment1, MPT_Float:$new_moment2);
}
def MPT_RMSPropOp : MPT_InferredOp<"rmsprop", "Pinned", [], "0b1111111"> {
  let summary = "RMSProp (Tieleman and Hinton, 2012), centered (arXiv 1308.0850) or with momentum";
  let description = [{
    g += weight_decay p; v' = alpha v + (1 - alpha) g^2; centered: a' = alpha a + (1 - alpha) g, d = sqrt(v' - a'^2) +
    epsilon, else d = sqrt(v') + epsilon; with momentum: b' = momentum b + g / d, p' = p - lr b', else p' = p - lr g / d.
    lr is a scalar; `slots` are v, a where centered, b where momentum is not 0. C1: as many slots.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, Variadic<MPT_Float>:$slots,
    DefaultValuedAttr<F64Attr, "0.99">:$alpha, DefaultValuedAttr<F64Attr, "1.0e-8">:$epsilon,
    DefaultValuedAttr<F64Attr, "0.0">:$momentum, DefaultValuedAttr<F64Attr, "0.0">:$weight_decay,
    DefaultValuedAttr<BoolAttr, "false">:$centered);
  let results = (outs MPT_Float:$new_param, Variadic<MPT_Float>:$new_slots);
}
def MPT_LionOp : MPT_InferredOp<"lion", "Pinned", [], "0b0111"> {
  let summary = "Lion (arXiv 2302.06675)";
  let description = [{
    p' = p - lr (sign(beta1 m + (1 - beta1) g) + weight_decay p); m' = beta2 m + (1 - beta2) g. lr is a scalar.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Float:$moment,
    DefaultValuedAttr<F64Attr, "0.9">:$beta1, DefaultValuedAttr<F64Attr, "0.99">:$beta2,
    DefaultValuedAttr<F64Attr, "0.0">:$weight_decay);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_moment);
}
def MPT_LAMBOp : MPT_InferredOp<"lamb", "Pinned", [], "0b110111"> {
  let summary = "LAMB (arXiv 1904.00962)";
  let description = [{
    m' = beta1 m + (1 - beta1) g; v' = beta2 v + (1 - beta2) g^2; u = m' / (1 - beta1^step) / (sqrt(v' / (1 - beta2^step))
    + epsilon) + weight_decay p; p' = p - lr |p| / |u| u with L2 norms over the tensor, and without the ratio where one of
    them is 0. lr is a scalar, step a scalar i64 counting from 1.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, MPT_Float:$moment1, MPT_Float:$moment2,
    DefaultValuedAttr<F64Attr, "0.9">:$beta1, DefaultValuedAttr<F64Attr, "0.999">:$beta2,
    DefaultValuedAttr<F64Attr, "1.0e-6">:$epsilon, DefaultValuedAttr<F64Attr, "0.0">:$weight_decay);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_moment1, MPT_Float:$new_moment2);
}
def MPT_LARSOp : MPT_InferredOp<"lars", "Pinned", [], "0b0111"> {
  let summary = "LARS (arXiv 1708.03888)";
  let description = [{
    r = trust |p| / (|g| + weight_decay |p| + epsilon) with L2 norms over the tensor, 1 where |p| or |g| is 0;
    m' = momentum m + lr r (g + weight_decay p); p' = p - m'. lr is a scalar.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Float:$slot,
    DefaultValuedAttr<F64Attr, "0.9">:$momentum, DefaultValuedAttr<F64Attr, "1.0e-3">:$trust,
    DefaultValuedAttr<F64Attr, "0.0">:$epsilon, DefaultValuedAttr<F64Attr, "0.0">:$weight_decay);
  let results = (outs MPT_Float:$new_param, MPT_Float:$new_slot);
}
def MPT_AdafactorOp : MPT_InferredOp<"adafactor", "Pinned", [], "0b1111111"> {
  let summary = "Adafactor (arXiv 1804.04235) without a first moment, as torch.optim.Adafactor";
  let description = [{
    b = step^decay; w = max(epsilon2, rms(p)) min(lr, 1 / sqrt(step)); p -= lr weight_decay p. Of a parameter of rank 2 or
    more: r' = r + b (mean of g^2 over the last axis - r), c' the same over the axis before it, v = r' c' / max(mean of r',
    epsilon1); of others: v' = v + b (g^2 - v). u = g / sqrt(max(v, epsilon1^2)); p' = p - w u / max(1, rms(u) / clip). lr is a scalar,
    step a scalar i64 counting from 1. `slots` are r [..., R, 1] and c [..., 1, C], or v. C1: slots of these shapes.
  }];
  let arguments = (ins MPT_Float:$param, MPT_Float:$grad, MPT_Float:$lr, MPT_Int:$step, Variadic<MPT_Float>:$slots,
    DefaultValuedAttr<F64Attr, "-0.8">:$decay, DefaultValuedAttr<F64Attr, "1.1920928955078125e-07">:$epsilon1,
    DefaultValuedAttr<F64Attr, "1.0e-3">:$epsilon2, DefaultValuedAttr<F64Attr, "1.0">:$clip,
    DefaultValuedAttr<F64Attr, "0.0">:$weight_decay);
  let results = (outs MPT_Float:$new_param, Variadic<MPT_Float>:$new_slots);
  let extraClassDeclaration = precisionMethods # [{
    /// Shapes of the slots for a parameter of `shape`.
    static ::llvm::SmallVector<::llvm::SmallVector<int64_t>> slotShapes(::llvm::ArrayRef<int64_t> shape);
  }];
}

#endif
