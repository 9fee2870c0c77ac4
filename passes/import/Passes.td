// SPDX-License-Identifier: Apache-2.0
// Passes of the import stage. Flag, class, file and test share one name: --import-<name>, <Name>.cpp, test/passes/import/<name>.mlir.
#ifndef MPT_PASSES_IMPORT_PASSES_TD
#define MPT_PASSES_IMPORT_PASSES_TD

include "passes/PassBase.td"

def OnnxToCore : Pass<"import-onnx-to-core", "::mlir::ModuleOp"> {
  let summary = "func @main of onnx.node ops becomes func @forward of core ops";
  let description = [{
    Rules by op type and version; shape arithmetic is evaluated, dead code and unread states go. A node without a rule is
    an error that names the supported ops near it.
  }];
  let dependentDialects = ["::mpt::MPTDialect", "::mpt::train::TrainDialect", "::mlir::func::FuncDialect"];
}

def RecognizeComposites : Pass<"import-recognize-composites", "::mlir::ModuleOp"> {
  let summary = "elementwise chains that mean GELU, SiLU or RMS normalization become that op";
  let description = [{
    Exporters without these operators write them out. As one op they keep FP32 internals under every policy, save one
    tensor for the backward pass and run as one kernel. Constants match within 0.2 %, which is what exporters round to.
  }];
  let dependentDialects = ["::mpt::MPTDialect"];
}

#endif
