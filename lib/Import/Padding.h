// SPDX-License-Identifier: Apache-2.0
// Padding of tensors at both ends of their axes.
#ifndef MPT_LIB_IMPORT_PADDING_H
#define MPT_LIB_IMPORT_PADDING_H

#include "Binder.h"

namespace mpt {

/// Pad: margins of both signs, in all modes.
llvm::LogicalResult importPad(Binder &b);
/// CenterCropPad: each axis brought to an extent, half of the difference at each end.
llvm::LogicalResult importCenterCropPad(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_PADDING_H
