// Passes of the training stage. Flag, class, file and test share one name: --training-<name>, <Name>.cpp, test/passes/training/<name>.mlir.
#ifndef MPT_PASSES_TRAINING_PASSES_TD
#define MPT_PASSES_TRAINING_PASSES_TD

include "passes/PassBase.td"

#endif
