// Discardable attributes by which the precision passes talk to each other.
#ifndef MPT_PRECISION_ATTRIBUTES_H
#define MPT_PRECISION_ATTRIBUTES_H

#include "llvm/ADT/StringRef.h"

namespace mpt {

/// On the module: summary of the policy (name, storage, accumulate, master, loss_scaling).
inline constexpr llvm::StringLiteral kPolicyAttr = "mpt.policy";
/// On an op: {operands = [type or unit...], results = [...], rule = "..."}; unit means "as it is". On a train.state:
/// {type, rule}.
inline constexpr llvm::StringLiteral kPrecisionAttr = "mpt.precision";
/// On a function: how many of its casts round. Kept up to date by each pass that adds or removes one, so that
/// verification notices a rounding that was optimized away.
inline constexpr llvm::StringLiteral kLossyCastsAttr = "mpt.lossy_casts";
/// On a constant that the conversion to a narrow type changed by more than rounding: what happened.
inline constexpr llvm::StringLiteral kRangeAttr = "mpt.range";
/// On the train.scale_loss (scale 1 until loss scaling), or the constant, from which differentiation starts.
inline constexpr llvm::StringLiteral kSeedAttr = "mpt.seed";
/// On ops that compute the loss from the model's outputs.
inline constexpr llvm::StringLiteral kLossAttr = "mpt.loss";
/// On a narrow parameter: name of the master that it starts from.
inline constexpr llvm::StringLiteral kFromAttr = "from";
/// On arguments and results of functions: their public name.
inline constexpr llvm::StringLiteral kNameAttr = "mpt.name";

} // namespace mpt

#endif // MPT_PRECISION_ATTRIBUTES_H
