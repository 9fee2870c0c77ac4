// SPDX-License-Identifier: Apache-2.0
// mpt-lsp-server: editor support for .mlir files with mpt's dialects.
#include "mpt/Driver/Registration.h"

#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mpt::registerAll(registry);
  return mlir::asMainReturnCode(mlir::MlirLspServerMain(argc, argv, registry));
}
