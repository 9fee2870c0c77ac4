// SPDX-License-Identifier: Apache-2.0
// All families of library calls.
#ifndef MPT_DIALECT_LIBRARY_LIBRARYOPS_TD
#define MPT_DIALECT_LIBRARY_LIBRARYOPS_TD

include "mpt/Dialect/Library/AttentionOps.td"
include "mpt/Dialect/Library/ConvOps.td"
include "mpt/Dialect/Library/GemmOps.td"

#endif
