// SPDX-License-Identifier: Apache-2.0
// Answering requests for gradients by backward passes.
#ifndef MPT_AUTODIFF_REQUESTS_H
#define MPT_AUTODIFF_REQUESTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>

namespace mpt {

/// Puts a backward pass in place of every train.derive of `function`. Returns the gradients, request by request.
///
/// With `training`, requests with respect to trained parameters become part of a training step: each such gradient is a
/// train.gradient, and the seed has the attribute `mpt.seed` (a unit where `training` is empty and there is one
/// request, else a name that starts with `training`). Gradients that a later request derives once more are left plain,
/// as gradients with respect to other tensors are: no loss scale reaches them.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> answerRequests(mlir::func::FuncOp function,
                                                               std::optional<llvm::StringRef> training);

} // namespace mpt

#endif // MPT_AUTODIFF_REQUESTS_H
