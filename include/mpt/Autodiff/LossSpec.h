// SPDX-License-Identifier: Apache-2.0
// Text form of a loss, as users give it to --loss.
#ifndef MPT_AUTODIFF_LOSSSPEC_H
#define MPT_AUTODIFF_LOSSSPEC_H

#include "mpt/Support/Described.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>

namespace mpt {

enum class LossKind { softmaxCrossEntropy, nll, focal, mse, l1, smoothL1, huber, bceWithLogits, kl, cosine, ctc, none };

/// The reduction of a loss of several elements that the model has itself.
enum class OwnReduction { none, mean, sum };

/// A loss of one of the model's results; fields that its kind does not use keep their defaults.
struct LossSpec {
  LossKind kind = LossKind::none;
  std::string output;                 ///< the result; empty: the first one
  double weight = 1.0;                ///< in the sum of several losses
  int64_t classAxis = 1;              ///< axis of the classes, of losses that have them; negative from the end; ctc: 2
  std::optional<int64_t> ignoreIndex; ///< label whose samples do not count; ctc: padding behind the last label
  double beta = 1.0;                  ///< smooth-l1, huber: where the square ends
  double gamma = 2.0, alpha = 1.0;    ///< focal
  int64_t maxLabels = 0;              ///< ctc: labels of the longest sequence
  int64_t blank = 0;                  ///< ctc: class of the blank
  int64_t batchAxis = 1;              ///< ctc: axis of the sequences; negative from the end
  OwnReduction reduction = OwnReduction::none; ///< none: of the elements of the result
  bool zeroInfinity = false;                   ///< ctc: a sequence that cannot be aligned counts as 0
};

/// True for losses whose targets are class indices.
bool hasClasses(LossKind kind);

/// Parses `KIND[,KEY=VALUE]...[;KIND...]`: softmax-cross-entropy, nll and focal (class-axis, ignore-index; focal also
/// gamma, alpha), mse, l1, smooth-l1 (beta), huber (delta), bce-with-logits, kl, cosine, ctc (max-labels,
/// which it needs, blank, batch-axis, class-axis, ignore-index, zero-infinity) or none (reduction), each with output
/// and weight. Each of several losses names its output, all different. The error of unknown or malformed text names
/// the expected form.
llvm::Expected<llvm::SmallVector<LossSpec, 1>> parseLossSpecs(llvm::StringRef text);

/// The kinds and their settings, for lists that users ask for.
std::vector<Described> describeLosses();

} // namespace mpt

#endif // MPT_AUTODIFF_LOSSSPEC_H
