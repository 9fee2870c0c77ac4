// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of signals.
#ifndef MPT_LIB_IMPORT_FOURIER_H
#define MPT_LIB_IMPORT_FOURIER_H

#include "Binder.h"

namespace mpt {

llvm::LogicalResult importDFT(Binder &b);
/// Windows of a signal [B, T] or [B, T, parts], each transformed: [B, windows, frequencies, 2].
llvm::LogicalResult importSTFT(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_FOURIER_H
