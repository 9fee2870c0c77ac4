// SPDX-License-Identifier: Apache-2.0
// Everything that a library for a host consists of, in order.
#include "HostLibrary.h"

#include "Emit.h"
#include "KernelCode.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

LogicalResult mpt::target::emitHostLibrary(ModuleOp module, const LibraryOptions &given, const Target &target,
                                           const Processor &processor, StringRef callPrefix) {
  LibraryOptions options = given;
  options.architecture = processor.otherArchitecture();
  if (failed(complete(module, target.runtimeLibrary(), options)))
    return failure();
  FailureOr<Program> program = Program::read(module, options.name, target);
  if (failed(program))
    return failure();
  program->callPrefix = callPrefix.str();
  llvm::Expected<Machine> machine = Machine::create(processor);
  if (!machine)
    return module.emitError() << llvm::toString(machine.takeError());
  program->cpu = machine->cpu;
  program->cpuFeatures = machine->features;
  unsigned threads = llvm::hardware_concurrency().compute_thread_count();
  std::string manifest = manifestOf(module, *program), listing;

  SmallVector<Object> objects;
  if (failed(compileKernels(module, *program, processor, threads, objects, options.keepIR ? &listing : nullptr)))
    return failure();
  llvm::LLVMContext context;
  llvm::Module code(options.name, context);
  code.setDataLayout(machine->target->createDataLayout());
  if (failed(buildEntries(*program, code, options.debugNonfinite)))
    return failure();
  buildTables(*program, manifest, code);
  machine->adopt(code);
  objects.emplace_back();
  if (llvm::Error error = machine->compile(code, objects.back()))
    return module.emitError() << llvm::toString(std::move(error));
  if (options.keepIR)
    llvm::raw_string_ostream(listing) << code;
  if (llvm::Error error = writeLibrary(*program, manifest, objects, listing, options))
    return module.emitError() << llvm::toString(std::move(error));
  return success();
}

void mpt::target::registerHostDialects(DialectRegistry &registry) {
  registry.insert<LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}
