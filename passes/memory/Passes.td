// Passes of the memory stage. Flag, class, file and test share one name: --memory-<name>, <Name>.cpp, test/passes/memory/<name>.mlir.
#ifndef MPT_PASSES_MEMORY_PASSES_TD
#define MPT_PASSES_MEMORY_PASSES_TD

include "passes/PassBase.td"

#endif
