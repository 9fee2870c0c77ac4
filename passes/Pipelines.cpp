// The order of the compiler's phases, and the reasons for it.
#include "passes/Pipelines.h"

#include "passes/fusion/Passes.h"
#include "passes/import/Passes.h"
#include "passes/lowering/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/precision/Passes.h"
#include "passes/training/Passes.h"

#include "mlir/Transforms/Passes.h"

void mpt::registerAllPasses() {
  registerImportPasses();
  registerTrainingPasses();
  registerPrecisionPasses();
  registerFusionPasses();
  registerMemoryPasses();
  registerLoweringPasses();
  mlir::registerTransformsPasses();
}
