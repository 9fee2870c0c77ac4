// SPDX-License-Identifier: Apache-2.0
// Library calls on tensors: dialect class, attributes, enums and ops.
#ifndef MPT_DIALECT_LIBRARY_LIBRARYDIALECT_H
#define MPT_DIALECT_LIBRARY_LIBRARYDIALECT_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/GemmLike.h"

#include "mpt/Dialect/Library/LibraryDialect.h.inc"
#include "mpt/Dialect/Library/LibraryEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/Library/LibraryAttributes.h.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Library/LibraryOps.h.inc"

#endif // MPT_DIALECT_LIBRARY_LIBRARYDIALECT_H
