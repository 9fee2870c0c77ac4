// Passes of the lowering stage. Flag, class, file and test share one name: --lowering-<name>, <Name>.cpp, test/passes/lowering/<name>.mlir.
#ifndef MPT_PASSES_LOWERING_PASSES_TD
#define MPT_PASSES_LOWERING_PASSES_TD

include "passes/PassBase.td"

#endif
