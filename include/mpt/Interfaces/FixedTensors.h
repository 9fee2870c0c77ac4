// SPDX-License-Identifier: Apache-2.0
// Tensors whose values tell that they are no parameters. Null for values that are not known gives the answer for
// activations.
#ifndef MPT_INTERFACES_FIXEDTENSORS_H
#define MPT_INTERFACES_FIXEDTENSORS_H

#include "mlir/IR/BuiltinAttributes.h"

namespace mpt {

bool isZero(mlir::ElementsAttr values);

/// A tensor that is added to scores before a softmax so that some count nothing: 0 and one number far below.
bool isMask(mlir::ElementsAttr values);

/// One element that somebody has written down: of few digits, or a constant of mathematics.
bool isNumberOfFormula(mlir::ElementsAttr values);

/// The meaning of values that no training leaves behind: "sinusoidal table", "window", "fixed filter" (a Fourier basis,
/// a blur), "filter bank" or "positions"; empty for all others. `isWeight` where a layer reads the tensor as its
/// weight. Time linear in the elements of such a tensor, and a few elements of others.
llvm::StringRef fixedMeaning(mlir::ElementsAttr values, bool isWeight);

} // namespace mpt

#endif // MPT_INTERFACES_FIXEDTENSORS_H
