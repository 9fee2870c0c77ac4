// SPDX-License-Identifier: Apache-2.0
// The roles of the results of a joint graph, from import to phase training.
#ifndef MPT_DIALECT_ONNX_TRAININGROLES_H
#define MPT_DIALECT_ONNX_TRAININGROLES_H

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/StringRef.h"

namespace mpt::onnx {

/// On a module whose graph brings its own backward pass: a dictionary with `loss`, the name of a result; `backward`,
/// which backward pass is used ("file", or "derived" where the compiler makes it anew); `gradients` and `next`,
/// dictionaries from names of results to the states that they are gradients or new values of; and, where the file has
/// them, `optimizer` (as --optimizer says it), the name of the `learning_rate` in it, the `clip_norm` of its gradients,
/// and the unit `updates` where new values of parameters are results.
inline constexpr llvm::StringLiteral kTrainingRoles = "onnx.training";

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_TRAININGROLES_H
