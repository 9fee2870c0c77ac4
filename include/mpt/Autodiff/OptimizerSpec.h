// Text form of an optimizer and its hyperparameters, as users give it to --optimizer.
#ifndef MPT_AUTODIFF_OPTIMIZERSPEC_H
#define MPT_AUTODIFF_OPTIMIZERSPEC_H

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
};

/// Parses `KIND[,KEY=VALUE]...`: sgd (lr, momentum, dampening, nesterov, weight-decay), adam and adamw (lr,
/// betas=B1:B2, eps, weight-decay), adagrad (lr, lr-decay, eps, weight-decay). Without lr: 0.01 for sgd and adagrad,
/// 0.001 for adam and adamw; adamw's weight-decay is 0.01 unless given. The error of unknown or malformed text names
/// what was expected.
llvm::Expected<OptimizerSpec> parseOptimizerSpec(llvm::StringRef text);

llvm::StringRef stringifyOptimizerKind(OptimizerKind kind);

} // namespace mpt

#endif // MPT_AUTODIFF_OPTIMIZERSPEC_H
