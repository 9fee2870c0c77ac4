// SPDX-License-Identifier: Apache-2.0
// Activations that operators name by a string: in the gates of recurrences, and fused by ONNX Runtime.
#ifndef MPT_LIB_IMPORT_ACTIVATIONS_H
#define MPT_LIB_IMPORT_ACTIVATIONS_H

#include "Binder.h"

namespace mpt {

/// An activation with its parameters.
struct Activation {
  enum Kind {
    relu,
    tanh,
    sigmoid,
    affine,
    leakyRelu,
    thresholdedRelu,
    scaledTanh,
    hardSigmoid,
    elu,
    selu,
    softsign,
    softplus,
    clip
  };
  Kind kind;
  double alpha = 0, beta = 0;

  mlir::Value apply(Binder &b, mlir::Value x) const;
};

/// The specification of an activation: whether it takes alpha and beta, and their defaults.
struct ActivationText {
  Activation::Kind kind;
  std::optional<double> alpha, beta;
};

/// An activation of a recurrence's gate, in any case of letters.
std::optional<ActivationText> gateActivation(llvm::StringRef name);

/// `x`, the result of a GEMM, behind the activation that ONNX Runtime has fused into the node: its attribute
/// `activation`, with the numbers in `parameters` in the order of the operator's own.
llvm::FailureOr<mlir::Value> fusedActivation(Binder &b, mlir::Value x,
                                             llvm::ArrayRef<std::optional<double>> parameters);

} // namespace mpt

#endif // MPT_LIB_IMPORT_ACTIVATIONS_H
