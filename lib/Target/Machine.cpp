// SPDX-License-Identifier: Apache-2.0
// Target machines, optimization and object code.
#include "Machine.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"
#include <mutex>

using namespace llvm;
using namespace mpt::target;

namespace {

// Features that a processor may lack and whose instructions LLVM chooses by itself; the runtime checks them when it
// loads a library.
constexpr StringLiteral kFeatures[] = {
    "sse3", "ssse3", "sse4.1", "sse4.2", "sse4a", "popcnt", "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt",
    "movbe", "gfni", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512ifma", "avx512vbmi",
    "avx512vbmi2", "avx512vnni", "avxvnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16",
    // AArch64's
    "lse", "rdm", "fullfp16", "fp16fml", "dotprod", "jsconv", "complxnum", "fptoint", "i8mm", "bf16", "sve", "sve2",
    "mops"};

void initialize() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeAArch64TargetInfo();
    LLVMInitializeAArch64Target();
    LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter();
  });
}

Triple tripleOf(const Processor &processor) {
  return Triple(processor.triple.empty() ? sys::getDefaultTargetTriple() : Triple::normalize(processor.triple));
}

/// The first of comma-separated features, as "+bf16", that is none of the processor's architecture.
std::optional<StringRef> unknownFeature(const MCSubtargetInfo &known, StringRef features) {
  for (StringRef word : split(features, ',')) {
    StringRef name = word.drop_front(word.empty() ? 0 : 1);
    bool isSigned = word.starts_with("+") || word.starts_with("-");
    if (!isSigned || none_of(known.getAllProcessorFeatures(), [&](const auto &f) { return name == f.Key; }))
      return word;
  }
  return std::nullopt;
}

} // namespace

bool mpt::target::isKnownTriple(StringRef triple) {
  Triple parsed(Triple::normalize(triple));
  return parsed.isOSLinux() && parsed.isOSBinFormatELF() &&
         (parsed.getArch() == Triple::x86_64 || parsed.getArch() == Triple::aarch64);
}

std::string Processor::otherArchitecture() const {
  Triple::ArchType arch = tripleOf(*this).getArch();
  bool isOurs = arch == Triple(sys::getProcessTriple()).getArch();
  return isOurs ? "" : (Triple::getArchTypeName(arch) + "-linux-gnu").str();
}

Expected<Machine> Machine::create(const Processor &processor) {
  initialize();
  Triple triple = tripleOf(processor);
  std::string error;
  const llvm::Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return createStringError(error);
  Machine machine;
  bool isOther = !processor.otherArchitecture().empty();
  machine.cpu = !processor.cpu.empty() ? processor.cpu : isOther ? "generic" : "native";
  std::vector<std::string> features;
  std::unique_ptr<MCSubtargetInfo> known(target->createMCSubtargetInfo(triple, "", ""));
  if (machine.cpu == "native" && !isOther) {
    machine.cpu = sys::getHostCPUName().str();
    for (const auto &feature : sys::getHostCPUFeatures())
      features.push_back((feature.second ? "+" : "-") + feature.first().str());
  } else if (!known || !known->isCPUStringValid(machine.cpu)) {
    return createStringError("expected a processor that LLVM knows for " + triple.str() + ", got '" + machine.cpu +
                             "'");
  }
  if (!processor.features.empty()) {
    if (auto word = unknownFeature(*known, processor.features))
      return createStringError("expected features that LLVM knows for " + triple.str() +
                               ", each with + or -, as in --mattr=+bf16,-sve; got '" + *word + "'");
    features.push_back(processor.features);
  }
  machine.target.reset(target->createTargetMachine(triple, machine.cpu, join(features, ","), TargetOptions(),
                                                   Reloc::PIC_, std::nullopt, CodeGenOptLevel::Aggressive));
  if (!machine.target)
    return createStringError("no code generator for " + triple.str());
  for (StringRef feature : kFeatures)
    if (machine.has(feature))
      machine.features += (machine.features.empty() ? "" : ",") + feature.str();
  return std::move(machine);
}

bool Machine::has(StringRef feature) const {
  const MCSubtargetInfo &info = *target->getMCSubtargetInfo();
  return any_of(info.getAllProcessorFeatures(), [&](const auto &known) { return feature == known.Key; }) &&
         info.checkFeatures(("+" + feature).str());
}

/// Gathers its vectors element by element, and many of them.
static bool gathersMuch(const Function &function) {
  int64_t elements = 0;
  for (const Instruction &instruction : instructions(function))
    if (auto insert = dyn_cast<InsertElementInst>(&instruction))
      elements += isa<LoadInst>(insert->getOperand(1));
  return elements > 256;
}

void Machine::adopt(Module &module) const {
  module.setTargetTriple(target->getTargetTriple());
  module.setDataLayout(target->createDataLayout());
  bool wide = has("avx512f");
  for (Function &function : module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr("target-cpu", cpu);
    function.addFnAttr("target-features", target->getTargetFeatureString());
    function.addFnAttr(Attribute::NoUnwind);
    // The vectors are there: LLVM would look for others in more than the square of the gathered elements' number.
    if (gathersMuch(function))
      function.addFnAttr(Attribute::NoImplicitFloat);
    if (wide)
      function.addFnAttr("prefer-vector-width", "512");
  }
}

Error Machine::compile(Module &module, SmallVectorImpl<char> &object) const {
  PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = true;
  PassBuilder passes(target.get(), tuning);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager graphs;
  ModuleAnalysisManager modules;
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(graphs);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, graphs, modules);
  passes.buildPerModuleDefaultPipeline(OptimizationLevel::O3).run(module, modules);

  raw_svector_ostream out(object);
  legacy::PassManager codegen;
  if (target->addPassesToEmitFile(codegen, out, nullptr, CodeGenFileType::ObjectFile))
    return createStringError("no object files for " + target->getTargetTriple().str());
  codegen.run(module);
  return Error::success();
}
