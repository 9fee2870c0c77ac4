// Passes of the precision stage. Flag, class, file and test share one name: --precision-<name>, <Name>.cpp, test/passes/precision/<name>.mlir.
#ifndef MPT_PASSES_PRECISION_PASSES_TD
#define MPT_PASSES_PRECISION_PASSES_TD

include "passes/PassBase.td"

#endif
