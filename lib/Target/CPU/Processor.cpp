// SPDX-License-Identifier: Apache-2.0
// Features of processors, as LLVM knows them.
#include "Processor.h"

#include "../Machine.h"

#include "llvm/MC/MCSubtargetInfo.h"

using llvm::StringRef;
using namespace mpt;

bool mpt::cpu::hasFeature(StringRef cpu, StringRef feature) {
  llvm::Expected<target::Machine> machine = target::Machine::create(cpu);
  if (!machine) {
    llvm::consumeError(machine.takeError());
    return false;
  }
  return machine->target->getMCSubtargetInfo()->checkFeatures(("+" + feature).str());
}

KernelTarget mpt::cpu::kernelTarget(StringRef cpu) {
  KernelTarget target;
  target.vectorBits = hasFeature(cpu, "avx512f") ? 512 : hasFeature(cpu, "avx2") ? 256 : 128;
  target.fma = hasFeature(cpu, "fma");
  target.halves = hasFeature(cpu, "f16c");
  return target;
}
