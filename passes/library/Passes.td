// SPDX-License-Identifier: Apache-2.0
// Passes of the library stage. Flag, class, file and test share one name: --library-<name>, <Name>.cpp, test/passes/library/<name>.mlir.
#ifndef MPT_PASSES_LIBRARY_PASSES_TD
#define MPT_PASSES_LIBRARY_PASSES_TD

include "passes/PassBase.td"

#endif
