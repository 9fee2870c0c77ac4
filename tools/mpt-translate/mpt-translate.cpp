// SPDX-License-Identifier: Apache-2.0
// mpt-translate: --import-onnx reads a binary or textual ONNX file and writes the module of onnx.node ops,
// --import-core the core graph.
#include "mpt/Import/Translations.h"

#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"

int main(int argc, char **argv) {
  mpt::registerImportTranslations();
  return failed(mlir::mlirTranslateMain(argc, argv, "mpt file translations\n")) ? 1 : 0;
}
