// Passes of the fusion stage. Flag, class, file and test share one name: --fusion-<name>, <Name>.cpp, test/passes/fusion/<name>.mlir.
#ifndef MPT_PASSES_FUSION_PASSES_TD
#define MPT_PASSES_FUSION_PASSES_TD

include "passes/PassBase.td"

#endif
