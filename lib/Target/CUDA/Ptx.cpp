// SPDX-License-Identifier: Apache-2.0
// PTX from GPU kernels: code generation by LLVM.
#include "mpt/Target/Ptx.h"

#include "KernelMaker.h"
#include "ToNvvm.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/Linker/Linker.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"
#include <mutex>

using namespace mlir;
using namespace mpt;

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace {

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

//===----------------------------------------------------------------------===//
// Code generation
//===----------------------------------------------------------------------===//

std::unique_ptr<llvm::TargetMachine> machineFor(StringRef arch, std::string &error) {
  initialize();
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  std::unique_ptr<llvm::MCSubtargetInfo> known(target->createMCSubtargetInfo(triple, "", ""));
  if (cuda::numberOfArch(arch).value_or(0) < 80 || !known || !known->isCPUStringValid(arch)) {
    error = "expected an architecture from sm_80 on that LLVM knows, got '" + arch.str() + "'";
    return nullptr;
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, arch, "", options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

void optimize(llvm::TargetMachine &machine, llvm::Module &module) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  llvm::PassBuilder passes(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(graphs);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, graphs, modules);
  passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(module, modules);
}

} // namespace

std::optional<int64_t> cuda::numberOfArch(StringRef arch) {
  int64_t number;
  if (arch == warpgroupArch)
    return 90;
  if (!arch.consume_front("sm_") || arch.getAsInteger(10, number))
    return std::nullopt;
  return number;
}

FailureOr<std::string> cuda::compileToPtx(ModuleOp kernels, StringRef arch) {
  std::string error;
  std::unique_ptr<llvm::TargetMachine> machine = machineFor(arch, error);
  if (!machine)
    return kernels.emitError() << error;
  unsigned number = 0;
  arch.drop_front(3).consumeInteger(10, number);
  FailureOr<SmallVector<ModuleOp>> parts = lowerKernels(kernels, number);
  if (failed(parts))
    return kernels.emitError() << "GPU kernels could not be lowered to LLVM";

  llvm::LLVMContext llvmContext;
  auto whole = std::make_unique<llvm::Module>("kernels", llvmContext);
  for (ModuleOp part : *parts) {
    if (part.getBody()->empty())
      continue;
    std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(part, llvmContext, "kernels");
    if (!code)
      return kernels.emitError() << "GPU kernels could not be translated to LLVM IR";
    code->setTargetTriple(machine->getTargetTriple());
    code->setDataLayout(machine->createDataLayout());
    for (llvm::GlobalVariable &global : llvm::make_early_inc_range(code->globals()))
      if (global.use_empty())
        global.eraseFromParent();
      else
        global.setLinkage(llvm::GlobalValue::InternalLinkage);
    whole->setTargetTriple(code->getTargetTriple());
    whole->setDataLayout(code->getDataLayout());
    if (llvm::Linker::linkModules(*whole, std::move(code)))
      return kernels.emitError() << "GPU kernels could not be linked";
  }
  // The search for a bundle's tensor stays a tree of branches.
  for (llvm::Function &function : *whole)
    if (!function.isDeclaration())
      function.addFnAttr("no-jump-tables", "true");
  for (llvm::Function &function : *whole)
    if (function.isDeclaration() && !function.isIntrinsic())
      return kernels.emitError() << "expected GPU kernels without calls, got one of '" << function.getName() << "'";
  // Warps execute statements of the assembler together, which LLVM may not know.
  for (llvm::Function &function : *whole)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallBase>(&instruction); call && call->isInlineAsm())
        call->setConvergent();
  optimize(*machine, *whole);
  SmallVector<char, 0> text;
  llvm::raw_svector_ostream out(text);
  llvm::legacy::PassManager codegen;
  if (machine->addPassesToEmitFile(codegen, out, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return kernels.emitError() << "no code generator for " << arch;
  codegen.run(*whole);
  return std::string(text.begin(), text.end());
}

void cuda::registerPtxDialects(DialectRegistry &registry) {
  registry.insert<LLVM::LLVMDialect, NVVM::NVVMDialect, gpu::GPUDialect, nvgpu::NVGPUDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}
