// SPDX-License-Identifier: Apache-2.0
// Discardable attributes by which the precision passes talk to each other.
#ifndef MPT_PRECISION_ATTRIBUTES_H
#define MPT_PRECISION_ATTRIBUTES_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace mpt {

/// On the module: summary of the policy (name, storage, accumulate, master, loss_scaling).
inline constexpr llvm::StringLiteral kPolicyAttr = "mpt.policy";
/// On an op: {operands = [type or unit...], results = [...], rule = "..."}; unit means "as it is"; with `quantized`,
/// operands are then converted to the policy's compute and gradients types. On a train.state: {type, rule}.
inline constexpr llvm::StringLiteral kPrecisionAttr = "mpt.precision";
/// On a function: how many of its casts round. Kept up to date by each pass that adds or removes one, so that
/// verification notices a rounding that was optimized away.
inline constexpr llvm::StringLiteral kLossyCastsAttr = "mpt.lossy_casts";
/// On the module: the next unused stream of random numbers for stochastic rounding. Streams below the first are the
/// model's own (dropout), so that one seed serves both.
inline constexpr llvm::StringLiteral kStreamsAttr = "mpt.rounding_streams";
inline constexpr int64_t kFirstStream = 1 << 20;
/// On a scalar that must be finite for a step to count, beside the gradients: the largest magnitude of a tensor whose
/// rounding saturates, which would hide an infinity.
inline constexpr llvm::StringLiteral kCheckedAttr = "mpt.checked";
/// On a slot: it may be kept narrow between steps (first moments; not sums of squares, which leave a narrow range from
/// below).
inline constexpr llvm::StringLiteral kStorableAttr = "mpt.storable";
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
