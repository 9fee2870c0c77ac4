// SPDX-License-Identifier: Apache-2.0
// --lowering-emit-library: the output of a target, as a pass.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Target/Target.h"

#include "passes/lowering/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Index/IR/IndexDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mpt {
#define GEN_PASS_DEF_EMITLIBRARY
#include "passes/lowering/Passes.h.inc"
} // namespace mpt

using namespace mlir;

namespace {

struct EmitLibrary : mpt::impl::EmitLibraryBase<EmitLibrary> {
  using EmitLibraryBase::EmitLibraryBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::unique_ptr<mpt::target::Target> emitter =
        mpt::target::createTarget(target, flags, [&] { return module.emitError(); });
    if (!emitter)
      return signalPassFailure();
    mpt::target::LibraryOptions options;
    options.outDir = out.empty() ? "." : std::string(out);
    options.name = name;
    if (options.name.empty())
      if (auto given = mpt::getAttr<mpt::MPTDialect::NameAttrHelper>(module))
        options.name = given.str();
    if (kind == "static") {
      options.kind = mpt::target::LibraryKind::Static;
    } else if (kind == "object") {
      options.kind = mpt::target::LibraryKind::Object;
    } else if (kind != "shared") {
      module.emitError() << "expected kind=shared, static or object, got '" << kind << "'";
      return signalPassFailure();
    }
    options.runtimeLibrary = runtime;
    options.linker = linker;
    options.keepIR = keepIR;
    if (failed(emitter->emit(module, options)))
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
