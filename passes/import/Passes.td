// Passes of the import stage. Flag, class, file and test share one name: --import-<name>, <Name>.cpp, test/passes/import/<name>.mlir.
#ifndef MPT_PASSES_IMPORT_PASSES_TD
#define MPT_PASSES_IMPORT_PASSES_TD

include "passes/PassBase.td"

#endif
