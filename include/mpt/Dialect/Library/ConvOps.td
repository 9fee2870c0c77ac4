// SPDX-License-Identifier: Apache-2.0
// Convolution family of library calls.
#ifndef MPT_DIALECT_LIBRARY_CONVOPS_TD
#define MPT_DIALECT_LIBRARY_CONVOPS_TD

include "mpt/Dialect/Library/LibraryBase.td"

#endif
