// SPDX-License-Identifier: Apache-2.0
// mpt-reduce: shrinks a .mlir file while a test script still finds it interesting.
#include "mpt/Driver/Registration.h"
#include "passes/Pipelines.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Tools/mlir-reduce/MlirReduceMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mpt::registerAll(registry);
  mpt::registerAllPasses();
  mlir::MLIRContext context(registry);
  return mlir::asMainReturnCode(mlir::mlirReduceMain(argc, argv, context));
}
