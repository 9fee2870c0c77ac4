// SPDX-License-Identifier: Apache-2.0
// The fewest bytes that the work between library calls can move.
#ifndef MPT_LIBRARY_TRAFFIC_H
#define MPT_LIBRARY_TRAFFIC_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>

namespace mpt::library {

/// Lower bounds of the bytes that kernels read and write, given the library calls and the values that the program
/// names. Two fusions share a kernel unless a path leads from one to the other through a library call. So a value is
/// read once for every member of the longest chain of its readers that no two of which may share one, not counting a
/// reader that may share its maker's; and it is written if a library call, the outside, or a reader apart from its
/// maker takes it. Views and copies cost nothing; of a table that is gathered from, the gathered rows count.
struct Traffic {
  int64_t minimum = 0; ///< as above
  /// The same where a path through a sum ends a kernel, too, if the elements of one result are more than a block holds:
  /// all blocks must have read their part before an element that depends on the sum can be made from values that are
  /// read again.
  int64_t withSums = 0;
};

/// The elements that threads which share a sum hold.
struct BlockMemory {
  int64_t bytes;       ///< any number if 0
  int64_t sectorBytes; ///< that an element takes with its neighbours where the sum is not along the row
};

/// For functions after fusion-form. Nothing where there are too many ops for the quadratic bookkeeping (20,000).
std::optional<Traffic> leastTraffic(mlir::func::FuncOp function, const BlockMemory &block);

} // namespace mpt::library

#endif // MPT_LIBRARY_TRAFFIC_H
