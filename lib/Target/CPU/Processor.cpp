// SPDX-License-Identifier: Apache-2.0
// What the rest of the compiler asks about the processor that code is generated for.
#include "mpt/Target/CPU.h"

#include "../Machine.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "llvm/MC/MCSubtargetInfo.h"

using namespace mlir;

bool mpt::cpu::hasFeature(StringRef cpu, StringRef feature) {
  llvm::Expected<target::Machine> machine = target::Machine::create(cpu);
  if (!machine) {
    llvm::consumeError(machine.takeError());
    return false;
  }
  return machine->target->getMCSubtargetInfo()->checkFeatures(("+" + feature).str());
}

unsigned mpt::cpu::vectorBits(StringRef cpu) {
  return hasFeature(cpu, "avx512f") ? 512 : hasFeature(cpu, "avx2") ? 256 : 128;
}

void mpt::cpu::registerDialects(DialectRegistry &registry) {
  registry.insert<LLVM::LLVMDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}
