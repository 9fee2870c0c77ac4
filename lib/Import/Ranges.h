// SPDX-License-Identifier: Apache-2.0
// Tensors made of positions.
#ifndef MPT_LIB_IMPORT_RANGES_H
#define MPT_LIB_IMPORT_RANGES_H

#include "Binder.h"

namespace mpt {

llvm::LogicalResult importRange(Binder &b);
/// Triangles over the bins of a spectrum, evenly spaced on the mel scale.
llvm::LogicalResult importMelWeightMatrix(Binder &b);
/// Matrices whose elements above or below a diagonal become 0.
llvm::LogicalResult importTrilu(Binder &b);
llvm::LogicalResult importEyeLike(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_RANGES_H
