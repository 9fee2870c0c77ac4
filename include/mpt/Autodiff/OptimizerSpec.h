// SPDX-License-Identifier: Apache-2.0
// Text form of an optimizer and its hyperparameters, as users give it to --optimizer.
#ifndef MPT_AUTODIFF_OPTIMIZERSPEC_H
#define MPT_AUTODIFF_OPTIMIZERSPEC_H

#include "mpt/Support/Described.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace mpt {

enum class OptimizerKind { sgd, adam, adamw, adagrad, rmsprop, lion, lamb, lars, adafactor };
enum class ScheduleKind { constant, linear, cosine, step, oneCycle };

/// The share of the learning rate that a step takes, by the number k of finished steps.
///
/// Over the first `warmup` steps: (k + 1) / warmup. After them, with q = (k - warmup) / (steps - warmup) from 0 to 1:
/// constant 1; linear 1 + (min - 1) q; cosine min + (1 - min) (1 + cos(pi q)) / 2; step gamma^floor((k - warmup) /
/// every). oneCycle has no warm-up of this kind: as torch.optim.lr_scheduler.OneCycleLR with cosines it goes from 1 /
/// div up to 1 over the share `rise` of `steps`, then down to 1 / (div final).
struct ScheduleSpec {
  ScheduleKind kind = ScheduleKind::constant;
  int64_t warmup = 0, steps = 0;              ///< steps: all of them; linear, cosine, oneCycle
  double min = 0.0;                           ///< linear, cosine
  double gamma = 0.1;                         ///< step
  int64_t every = 0;                          ///< step
  double rise = 0.3, div = 25.0, final = 1e4; ///< oneCycle

  bool isConstant() const { return kind == ScheduleKind::constant && warmup == 0; }
};

/// An optimizer; fields that its kind does not use keep their defaults. Defaults are PyTorch's.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::sgd;
  double lr = 1e-2; ///< default of the input learning_rate
  double weightDecay = 0.0;
  double momentum = 0.0, dampening = 0.0; ///< sgd
  bool nesterov = false;                  ///< sgd
  double beta1 = 0.9, beta2 = 0.999;      ///< adam, adamw
  double epsilon = 1e-8;                  ///< all but sgd, lion and adafactor
  bool epsilonHat = false;                ///< adam, adamw: epsilon joins the second moment before its correction
  bool correctsBias = true;               ///< adam, adamw
  double lrDecay = 0.0;                   ///< adagrad
  double alpha = 0.99;                    ///< rmsprop
  bool centered = false;                  ///< rmsprop
  double trust = 1e-3;                    ///< lars
  double decay = -0.8, epsilon1 = 1.1920928955078125e-07, epsilon2 = 1e-3, clip = 1.0; ///< adafactor
  ScheduleSpec schedule;
  std::string params; ///< regular expression: the parameters it updates; empty: all
};

/// Parses `KIND[,KEY=VALUE]...`: sgd (momentum, dampening, nesterov), adam and adamw (betas=B1:B2, eps, or eps-hat for
/// the form at the end of section 2 of arXiv 1412.6980, bias-correction), lamb (betas, eps), adagrad (lr-decay, eps),
/// rmsprop (alpha, eps, momentum, centered), lion (betas), lars (momentum, trust, eps), adafactor (decay, eps1, eps2,
/// clip), and of all lr, weight-decay and schedule=constant|linear|cosine|step|one-cycle with warmup, steps, min,
/// gamma, every, rise, div, final. The defaults are in the table of the source. The error of unknown or malformed
/// text names the expected form.
llvm::Expected<OptimizerSpec> parseOptimizerSpec(llvm::StringRef text);

/// Parses `SPEC[;SPEC]...`, one optimizer a group of parameters: a specification may end in `,params=REGEX`, which goes
/// up to the next semicolon.
llvm::Expected<llvm::SmallVector<OptimizerSpec, 1>> parseOptimizerSpecs(llvm::StringRef text);

/// The last of `groups` whose expression matches the whole of `name`, else the last one for all parameters; null
/// without one.
const OptimizerSpec *optimizerFor(llvm::ArrayRef<OptimizerSpec> groups, llvm::StringRef name);

/// The kinds and the keys of their settings, for lists that users ask for.
std::vector<Described> describeOptimizers();

llvm::StringRef stringifyOptimizerKind(OptimizerKind kind);

} // namespace mpt

#endif // MPT_AUTODIFF_OPTIMIZERSPEC_H
