// SPDX-License-Identifier: Apache-2.0
// --import-onnx-to-core: onnx.node ops to core ops; the rules are in lib/Import.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"
#include "passes/import/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_ONNXTOCORE
#include "passes/import/Passes.h.inc"
} // namespace mpt

namespace {
struct OnnxToCore : mpt::impl::OnnxToCoreBase<OnnxToCore> {
  void runOnOperation() override {
    if (failed(mpt::convertOnnxToCore(getOperation())))
      signalPassFailure();
  }
};
} // namespace
