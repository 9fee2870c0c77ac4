// SPDX-License-Identifier: Apache-2.0
// Text form of an optimizer and its hyperparameters, as users give it to --optimizer.
#ifndef MPT_AUTODIFF_OPTIMIZERSPEC_H
#define MPT_AUTODIFF_OPTIMIZERSPEC_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mpt {

enum class OptimizerKind { sgd, adam, adamw, adagrad };

/// An optimizer; fields that its kind does not use keep their defaults. Defaults are PyTorch's.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::sgd;
  double lr = 1e-2; ///< default of the input learning_rate
  double weightDecay = 0.0;
  double momentum = 0.0, dampening = 0.0; ///< sgd
  bool nesterov = false;                  ///< sgd
  double beta1 = 0.9, beta2 = 0.999;      ///< adam, adamw
  double epsilon = 1e-8;                  ///< adam, adamw, adagrad
  double lrDecay = 0.0;                   ///< adagrad
  std::string params;                     ///< regular expression: the parameters it updates; empty: all
};

/// Parses `KIND[,KEY=VALUE]...`: sgd (lr, momentum, dampening, nesterov, weight-decay), adam and adamw (lr,
/// betas=B1:B2, eps, weight-decay), adagrad (lr, lr-decay, eps, weight-decay). Without lr: 0.01 for sgd and adagrad,
/// 0.001 for adam and adamw; adamw's weight-decay is 0.01 unless given. The error of unknown or malformed text names
/// what was expected.
llvm::Expected<OptimizerSpec> parseOptimizerSpec(llvm::StringRef text);

/// Parses `SPEC[;SPEC]...`, one optimizer a group of parameters: a specification may end in `,params=REGEX`, which goes
/// up to the next semicolon.
llvm::Expected<llvm::SmallVector<OptimizerSpec, 1>> parseOptimizerSpecs(llvm::StringRef text);

/// The last of `groups` whose expression matches the whole of `name`, else the last one for all parameters; null
/// without one.
const OptimizerSpec *optimizerFor(llvm::ArrayRef<OptimizerSpec> groups, llvm::StringRef name);

llvm::StringRef stringifyOptimizerKind(OptimizerKind kind);

} // namespace mpt

#endif // MPT_AUTODIFF_OPTIMIZERSPEC_H
