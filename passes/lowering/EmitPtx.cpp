// SPDX-License-Identifier: Apache-2.0
// --lowering-emit-ptx: the code of GPU kernels as a pass.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Target/Ptx.h"

#include "passes/lowering/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/ToolOutputFile.h"

namespace mpt {
#define GEN_PASS_DEF_EMITPTX
#include "passes/lowering/Passes.h.inc"
} // namespace mpt

using namespace mlir;

namespace {

struct EmitPtx : mpt::impl::EmitPtxBase<EmitPtx> {
  using EmitPtxBase::EmitPtxBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
    for (Operation &op : *module.getBody())
      if (mpt::hasAttr<mpt::MPTDialect::GridAttrHelper>(&op) || isa<memref::GlobalOp>(op))
        kernels->push_back(op.clone());
    FailureOr<std::string> text = mpt::cuda::compileToPtx(*kernels, arch);
    if (failed(text))
      return signalPassFailure();
    std::string problem;
    std::unique_ptr<llvm::ToolOutputFile> out = openOutputFile(file, &problem);
    if (!out) {
      module.emitError() << problem;
      return signalPassFailure();
    }
    out->os() << *text;
    out->keep();
    markAllAnalysesPreserved();
  }
};

} // namespace
