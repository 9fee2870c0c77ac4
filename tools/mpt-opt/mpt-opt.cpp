// mpt-opt: runs passes on .mlir files.
#include "mpt/CAPI/Registration.h"
#include "passes/Pipelines.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mpt::registerAll(registry);
  mpt::registerAllPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "mpt precision-rewriting compiler\n", registry));
}
