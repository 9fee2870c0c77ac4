// SPDX-License-Identifier: Apache-2.0
// Attention family of library calls.
#ifndef MPT_DIALECT_LIBRARY_ATTENTIONOPS_TD
#define MPT_DIALECT_LIBRARY_ATTENTIONOPS_TD

include "mpt/Dialect/Library/LibraryBase.td"

#endif
