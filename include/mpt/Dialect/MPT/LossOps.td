// SPDX-License-Identifier: Apache-2.0
// Loss family. Other losses (mse, l1, bce-with-logits) are written in elementwise and reduce ops; of CTC, the recursion
// over the steps alone is an op.
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

// The recursion of CTC over the steps. Whole, it is a loop of one kernel a step.
class MPT_AlignmentOp<string mnemonic>
    : MPT_InferredOp<mnemonic, "Pinned", [DeclareOpInterfaceMethods<Decomposable>], "0b1111", "0b11", "true">;

def MPT_AlignmentsOp : MPT_AlignmentOp<"alignments"> {
  let summary = "log-probabilities of the beginnings of all alignments (CTC's forward variables)";
  let description = [{
    States [S] are blank, label, blank, ..., label, blank. `emissions` [T, N, S] are log-probabilities of the states' classes at
    each step, `skips` [N, S] is 0 where the blank before a label may be left out and -1e30 elsewhere, `open` [T, N] is 1 at the
    steps of a sequence and 0 behind its end. alphas[t] [N, S], with alphas[-1] = (0, -1e30, -1e30, ...):

    alphas[t, n, s] = emissions[t, n, s] + log(exp(a[s]) + exp(a[s - 1]) + exp(a[s - 2] + skips[n, s])), a = alphas[t - 1, n],
    where open[t, n] is above 0.5, else a[s]. What lies before the first state is -1e30, the logarithm of what cannot be.
    `last` is alphas[T - 1].

    All are FP32 or wider, of one type. Source: Graves et al., ICML 2006, section 4.1.

    C1: emissions are [T, N, S], T at least 1 and S at least 3. C2: skips are [N, S]. C3: open is [T, N].
  }];
  let arguments = (ins MPT_Float:$emissions, MPT_Float:$skips, MPT_Float:$open);
  let results = (outs MPT_Float:$last, MPT_Float:$alphas);
}
def MPT_AlignmentsBackwardOp : MPT_AlignmentOp<"alignments_backward"> {
  let summary = "gradients of the states after each step, from that of the last ones";
  let description = [{
    `dlast` [N, S] is the gradient of alignments's first result; `alphas`, `skips` and `open` are the second result and its operands.
    dalphas[T - 1] = dlast; dalphas[t - 1] is what alphas[t - 1] gets of dalphas[t]: the parts that exp(a[s]), exp(a[s - 1]) and
    exp(a[s - 2] + skips[s]) have in their sum, times dalphas[t, s], and all of it where open is 0. The gradient of the emissions
    is dalphas where open is 1, else 0.

    C1: alphas are [T, N, S], T at least 1 and S at least 3. C2: skips are [N, S]. C3: open is [T, N]. C4: dlast is [N, S].
  }];
  let arguments = (ins MPT_Float:$dlast, MPT_Float:$alphas, MPT_Float:$skips, MPT_Float:$open);
  let results = (outs MPT_Float:$dalphas);
}

#endif
