// SPDX-License-Identifier: Apache-2.0
// Loss family. Other losses (mse, l1, bce-with-logits) are written in elementwise and reduce ops.
#ifndef MPT_DIALECT_MPT_LOSSOPS_TD
#define MPT_DIALECT_MPT_LOSSOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_SoftmaxCrossEntropyOp : MPT_FlexibleOp<"softmax_cross_entropy", "Pinned", [], "0b100", "0b111"> {
  let summary = "cross entropy of softmax(logits [M, C]) with integer labels [M]";
  let description = [{
    Per row: log_sum_exp(logits) - logits[label], times weights[label] (C values, 1 if absent), 0 where label equals
    ignore_index. loss (FP32) is [M] for reduction none, else a scalar; mean divides by total, the sum of the kept rows'
    weights (a result, FP32 scalar). log_sum_exp is [M], FP32.
    C1: logits are [M, C] and labels [M]. C2: weights are [C].
  }];
  let arguments = (ins MPT_Float:$logits, MPT_Int:$labels, Optional<MPT_Float>:$weights,
    MPT_LossReductionAttr:$reduction, OptionalAttr<I64Attr>:$ignore_index);
  let results = (outs MPT_Float:$loss, MPT_Float:$log_sum_exp, MPT_Float:$total);
}
def MPT_SoftmaxCrossEntropyBackwardOp : MPT_FlexibleOp<"softmax_cross_entropy_backward", "Pinned"> {
  let summary = "gradient of softmax_cross_entropy with respect to logits";
  let description = [{
    (softmax(logits) - onehot(label)) weight[label] dloss, divided by total for mean; 0 where label equals ignore_index.
    dloss has loss's type. The arithmetic is FP32; the result may be narrow.
  }];
  let arguments = (ins MPT_Float:$dloss, MPT_Float:$logits, MPT_Int:$labels, MPT_Float:$log_sum_exp, MPT_Float:$total,
    Optional<MPT_Float>:$weights, MPT_LossReductionAttr:$reduction, OptionalAttr<I64Attr>:$ignore_index);
  let results = (outs MPT_Float:$dlogits);
}

#endif
