// SPDX-License-Identifier: Apache-2.0
// Features of processors, as LLVM knows them.
#include "Processor.h"

using namespace mpt;
using target::Machine;

/// The machine of a processor; null for unknown ones, which emission refuses.
static std::optional<Machine> machineOf(const target::Processor &processor) {
  llvm::Expected<Machine> machine = Machine::create(processor);
  if (machine)
    return std::move(*machine);
  llvm::consumeError(machine.takeError());
  return std::nullopt;
}

bool mpt::cpu::multipliesBf16(const target::Processor &processor) {
  std::optional<Machine> machine = machineOf(processor);
  return machine && machine->has("avx512bf16");
}

KernelTarget mpt::cpu::kernelTarget(const target::Processor &processor) {
  KernelTarget result;
  std::optional<Machine> machine = machineOf(processor);
  auto has = [&](llvm::StringRef feature) { return machine && machine->has(feature); };
  // Every AArch64 has registers of 128 bits, fused products and FP16 conversions.
  bool isArm = machine && machine->target->getTargetTriple().isAArch64();
  result.vectorBits = has("avx512f") ? 512 : has("avx2") ? 256 : 128;
  result.fma = isArm || has("fma");
  result.halves = isArm || has("f16c");
  result.bfloats = isArm && has("bf16");
  return result;
}
