// SPDX-License-Identifier: Apache-2.0
// Everything that a library for the CPU consists of, in order.
#include "mpt/Target/CPU.h"

#include "../Emit.h"
#include "../KernelCode.h"

#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cpu;
using namespace mpt::target;

LogicalResult mpt::cpu::emitLibrary(ModuleOp module, const EmitOptions &given) {
  EmitOptions options = given;
  if (failed(complete(module, "libmpt_rt.so", options)))
    return failure();
  FailureOr<Program> program = Program::read(module, options.name);
  if (failed(program))
    return failure();
  llvm::Expected<Machine> machine = Machine::create(options.cpu);
  if (!machine)
    return module.emitError() << llvm::toString(machine.takeError());
  program->cpu = machine->cpu;
  program->cpuFeatures = machine->features;
  unsigned threads = options.threads ? options.threads : llvm::hardware_concurrency().compute_thread_count();
  std::string manifest = manifestOf(module, *program), listing;

  SmallVector<Object> objects;
  if (failed(compileKernels(module, *program, options.cpu, threads, objects, options.keepIR ? &listing : nullptr)))
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
