// SPDX-License-Identifier: Apache-2.0
// Everything that a library for CUDA consists of, in order.
#include "Emit.h"

#include "../Emit.h"
#include "../KernelCode.h"
#include "Images.h"
#include "KernelMaker.h"

#include "mpt-c/abi.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"

#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;
using namespace mpt::target;

namespace {

/// Numbers the kernels of `module` in their order.
LogicalResult readKernels(ModuleOp module, Program &program) {
  program.kernels.clear();
  for (auto function : module.getOps<func::FuncOp>()) {
    auto grid = getAttr<MPTDialect::GridAttrHelper>(function);
    auto block = getAttr<MPTDialect::BlockAttrHelper>(function);
    if (!grid && !block)
      continue;
    if (!grid || !block || grid.size() != 3 || block.size() != 3)
      return function.emitOpError() << "expected three extents each as '" << MPTDialect::GridAttrHelper::getNameStr()
                                    << "' and '" << MPTDialect::BlockAttrHelper::getNameStr() << "'";
    KernelEntry entry;
    entry.name = function.getSymName().str();
    llvm::copy(grid.asArrayRef(), entry.grid.begin());
    llvm::copy(block.asArrayRef(), entry.block.begin());
    entry.numArgs = function.getNumArguments();
    program.entryNumbers[entry.name] = program.entries.size();
    program.entries.push_back(std::move(entry));
    program.kernels.push_back(function);
  }
  return success();
}

} // namespace

LogicalResult mpt::cuda::emitLibrary(ModuleOp module, const LibraryOptions &given, const Target &about,
                                     const CodeOptions &images) {
  LibraryOptions options = given;
  if (failed(complete(module, about.runtimeLibrary(), options)))
    return failure();
  addSupportKernels(module, options.debugNonfinite);
  if (failed(addChainKernels(module)))
    return failure();
  if (llvm::is_contained(images.archs, warpgroupArch))
    addWarpgroupKernels(module);
  FailureOr<Program> program = Program::read(module, options.name, about);
  if (failed(program))
    return failure();
  program->callPrefix = "mpt_cuda_";
  program->numbersKernels = true;
  // Code on the host calls the runtime and does nothing else: any processor of the family will do.
  llvm::Expected<Machine> machine = Machine::create({"", "generic", ""});
  if (!machine)
    return module.emitError() << llvm::toString(machine.takeError());
  program->cpu = machine->cpu;
  program->cpuFeatures = machine->features;
  unsigned threads = llvm::hardware_concurrency().compute_thread_count();
  SmallVector<Object> objects;
  std::string listing;
  if (failed(readKernels(module, *program)) ||
      failed(buildImages(module, *program, images, threads,
                         {objects, options.keepIR ? &listing : nullptr, options.kernelCode})))
    return failure();

  llvm::LLVMContext context;
  llvm::Module code(options.name, context);
  code.setDataLayout(machine->target->createDataLayout());
  if (failed(buildEntries(*program, code, options.debugNonfinite)))
    return failure();
  std::string manifest = manifestOf(module, *program);
  buildTables(*program, manifest, code);
  machine->adopt(code);
  objects.emplace_back();
  if (llvm::Error error = machine->compile(code, objects.back()))
    return module.emitError() << llvm::toString(std::move(error));
  if (llvm::Error error = writeLibrary(*program, manifest, objects, listing, options))
    return module.emitError() << llvm::toString(std::move(error));
  return success();
}
