// SPDX-License-Identifier: Apache-2.0
// Losses by composition of core ops.
#ifndef MPT_AUTODIFF_LOSSFORMULAS_H
#define MPT_AUTODIFF_LOSSFORMULAS_H

#include "mpt/Autodiff/LossSpec.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

/// The scalar loss of a prediction `x` and a target of its shape, both FP32 or wider.
///
/// Means over all elements: mse (x - t)^2; l1 |x - t|; smooth-l1 d^2 / (2 beta) where d = |x - t| < beta, else
/// d - beta / 2 (arXiv 1504.08083); huber d^2 / 2, else delta (d - delta / 2); bce-with-logits log(1 + e^x) - x t. kl:
/// the sum of t (log t - x), x being log-probabilities and 0 log 0 being 0, over the first extent. cosine: the mean
/// over vectors along the last axis of 1 - x t / max(|x| |t|, 1e-8).
mlir::Value lossOfTarget(GraphBuilder &b, const LossSpec &spec, mlir::Value x, mlir::Value t);

/// The mean over rows of `labels` [N] that are not ignored, for scores [N, C]: nll -x[label], x being
/// log-probabilities; focal -alpha (1 - p)^gamma log p with p the softmax of x at the label (arXiv 1708.02002). FP32 or
/// wider; 0 / 0 where all labels are ignored.
mlir::Value lossOfLabels(GraphBuilder &b, const LossSpec &spec, mlir::Value scores, mlir::Value labels);

/// `labels` as indices of `classes`. Gathers count negative indices from the end; here these become one that no gather
/// has, which the runtime refuses.
mlir::Value asClassIndices(GraphBuilder &b, mlir::Value labels, int64_t classes);

/// The targets of CTC: `labels` [N, S], of which the first `labelLengths` [N] count, and how many steps of the input
/// are in use, `inputLengths` [N].
struct SequenceTargets {
  mlir::Value labels, inputLengths, labelLengths;
};

/// Connectionist temporal classification (Graves et al., ICML 2006) of scores [T, N, C], logits or log-probabilities,
/// FP32 or wider: -log of the probability of all alignments, divided by the number of labels (1 for none), as a mean
/// over N. A sequence without an alignment is infinite, or 0 with `zeroInfinity`, and has no gradient.
mlir::Value lossOfSequences(GraphBuilder &b, const LossSpec &spec, mlir::Value scores, const SequenceTargets &targets);

} // namespace mpt

#endif // MPT_AUTODIFF_LOSSFORMULAS_H
