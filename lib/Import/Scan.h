// SPDX-License-Identifier: Apache-2.0
// Scan, a loop over the elements of its inputs.
#ifndef MPT_LIB_IMPORT_SCAN_H
#define MPT_LIB_IMPORT_SCAN_H

#include "Binder.h"

namespace mpt {

llvm::LogicalResult importScan(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_SCAN_H
