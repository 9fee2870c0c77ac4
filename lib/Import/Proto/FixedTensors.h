// SPDX-License-Identifier: Apache-2.0
// Tensors whose values tell that they are no parameters.
#ifndef MPT_LIB_IMPORT_PROTO_FIXEDTENSORS_H
#define MPT_LIB_IMPORT_PROTO_FIXEDTENSORS_H

#include "mpt/Dialect/Train/TrainDialect.h"

namespace mpt {

bool isZero(train::StateOp state);

/// A tensor that is added to scores before a softmax so that some count nothing: 0 and one number far below.
bool isMask(train::StateOp state);

/// One element that somebody has written down: of few digits, or a constant of mathematics.
bool isNumberOfFormula(train::StateOp state);

/// The meaning of values that no training leaves behind: "sinusoidal table", "window", "fixed filter" (a Fourier basis,
/// a blur), "filter bank" or "positions"; empty for all others. `isWeight` where a layer reads the tensor as its
/// weight. Time linear in the elements of such a tensor, and a few elements of others.
llvm::StringRef fixedMeaning(train::StateOp state, bool isWeight);

} // namespace mpt

#endif // MPT_LIB_IMPORT_PROTO_FIXEDTENSORS_H
