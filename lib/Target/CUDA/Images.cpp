// SPDX-License-Identifier: Apache-2.0
// Kernels to PTX, PTX to machine code where there is an assembler, or kernels to loops on the host.
#include "Images.h"

#include "Device.h"

#include "../KernelCode.h"
#include "KernelMaker.h"

#include "mpt-c/abi.h"
#include "mpt-c/abi_images.h"
#include "mpt/Lowering/Emulation/Emulation.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Lowering/GPU/Waves.h"
#include "mpt/Target/Ptx.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;
using namespace mpt::target;

namespace {

/// A module with nothing but the kernels for `arch` and the tables that they read.
OwningOpRef<ModuleOp> extractKernels(ModuleOp module, const Program &program, StringRef arch) {
  OwningOpRef<ModuleOp> result = ModuleOp::create(module.getLoc());
  auto own = module.lookupSymbol<ModuleOp>(arch); // kernels of this architecture, under the names of others
  for (ModuleOp from : {module, own})
    if (from)
      for (auto table : from.getOps<memref::GlobalOp>())
        result->push_back(table->clone());
  for (func::FuncOp kernel : program.kernels) {
    auto better = own ? own.lookupSymbol<func::FuncOp>(kernel.getName()) : func::FuncOp();
    result->push_back((better ? better : kernel)->clone());
  }
  return result;
}

/// Kernels as functions of the host, one for all launches of a fusion, under the number of its first.
LogicalResult buildHostImage(ModuleOp module, Program &program, unsigned threads, SmallVectorImpl<Object> &objects) {
  OwningOpRef<ModuleOp> kernels = extractKernels(module, program, "host");
  OpBuilder builder = OpBuilder::atBlockEnd(kernels->getBody());
  Program emulated;
  Image image{MPT_IMAGE_HOST, 0, {}, {}};
  llvm::StringSet<> done;
  for (const KernelEntry &entry : program.entries) {
    if (!done.insert(entry.name).second) {
      image.functions.push_back("");
      continue;
    }
    SmallVector<func::FuncOp> launches;
    std::string name = entry.name;
    while (auto launch = kernels->lookupSymbol<func::FuncOp>(name)) {
      done.insert(name);
      launches.push_back(launch);
      name = entry.name + "_" + std::to_string(launches.size());
    }
    FailureOr<func::FuncOp> function = emulateGpuKernel(builder, launches, entry.name + "_on_host");
    if (failed(function))
      return failure();
    emulated.kernels.push_back(*function);
    image.functions.push_back("mpt_" + function->getSymName().str());
  }
  if (failed(compileKernels(*kernels, emulated, Processor(), threads, objects, nullptr)))
    return failure();
  program.images.push_back(std::move(image));
  return success();
}

} // namespace

std::string mpt::cuda::findPtxas() {
  if (auto found = llvm::sys::findProgramByName("ptxas"))
    return *found;
  if (auto found = llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
    return *found;
  return "";
}

/// The number in front of `unit` in a line such as "Used 40 registers, 8192 bytes smem"; 0 where there is none.
static int64_t numberBefore(StringRef line, StringRef unit) {
  StringRef before = line.take_front(line.find(unit)).rtrim();
  int64_t number = 0;
  if (!line.contains(unit) || before.take_back(before.size() - before.rfind(' ') - 1).getAsInteger(10, number))
    return 0;
  return number;
}

SmallVector<KernelUse> mpt::cuda::usesOf(StringRef log) {
  SmallVector<KernelUse> found;
  for (StringRef line : llvm::split(log, '\n')) {
    auto [before, after] = line.split("Compiling entry function '");
    if (!after.empty())
      found.push_back({after.split('\'').first.str()});
    if (found.empty())
      continue;
    KernelUse &use = found.back();
    if (line.contains("bytes spill stores"))
      use.spilledBytes = numberBefore(line, "bytes spill stores") + numberBefore(line, "bytes spill loads");
    if (line.contains("Used ")) {
      use.registers = numberBefore(line, "registers");
      use.sharedBytes = numberBefore(line, "bytes smem");
    }
  }
  return found;
}

void mpt::cuda::allowRegisters(std::string &ptx, ArrayRef<KernelUse> kernels) {
  for (const KernelUse &kernel : kernels)
    if (size_t entry = ptx.find(".entry " + kernel.name + "("); entry != std::string::npos)
      if (size_t body = ptx.find("\n{", entry); body != std::string::npos) {
        constexpr StringLiteral directive = ".minnctapersm ";
        size_t wanted = ptx.find(directive, entry);
        if (wanted < body)
          ptx.replace(wanted, ptx.find('\n', wanted) - wanted, directive.str() + "1");
        else
          ptx.insert(body, ("\n" + directive + "1").str());
      }
}

/// Machine code; `said` receives the assembler's log.
static llvm::Expected<std::string> assembleOnce(StringRef ptxas, StringRef ptx, StringRef arch, std::string &said) {
  SmallString<128> in, out, log;
  auto error = [](const Twine &text) { return llvm::createStringError(text); };
  for (auto [path, suffix] : {std::pair(&in, "ptx"), std::pair(&out, "cubin"), std::pair(&log, "log")})
    if (std::error_code code = llvm::sys::fs::createTemporaryFile("mpt-kernels", suffix, *path))
      return error("cannot make a temporary file: " + code.message());
  llvm::FileRemover removeIn(in), removeOut(out), removeLog(log);
  std::error_code code;
  llvm::raw_fd_ostream file(in, code);
  file << ptx;
  file.close();
  if (file.has_error()) {
    code = file.error();
    file.clear_error();
    return error("cannot write '" + in + "': " + code.message());
  }
  std::string target = ("-arch=" + arch).str(), problem;
  StringRef arguments[] = {ptxas, target, "-O3", "-v", in, "-o", out};
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  int result = llvm::sys::ExecuteAndWait(ptxas, arguments, std::nullopt, redirects, 0, 0, &problem);
  if (auto text = llvm::MemoryBuffer::getFile(log))
    said = (*text)->getBuffer().str();
  if (result != 0)
    return error("'" + ptxas + "' could not assemble the kernels for " + arch + ": " +
                 (problem.empty() ? StringRef(said).take_front(2000).rtrim() : StringRef(problem)));
  auto bytes = llvm::MemoryBuffer::getFile(out, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!bytes)
    return error("cannot read '" + out + "': " + bytes.getError().message());
  return (*bytes)->getBuffer().str();
}

llvm::Expected<std::string> mpt::cuda::assemble(StringRef ptxas, std::string &ptx, StringRef arch,
                                                SmallVectorImpl<KernelUse> &uses) {
  std::string said;
  llvm::Expected<std::string> code = assembleOnce(ptxas, ptx, arch, said);
  uses = usesOf(said);
  SmallVector<KernelUse> spilling = llvm::filter_to_vector(uses, [](const KernelUse &use) { return use.spilledBytes; });
  if (!code || spilling.empty())
    return code;
  allowRegisters(ptx, spilling);
  code = assembleOnce(ptxas, ptx, arch, said);
  uses = usesOf(said);
  return code;
}

/// Why a library has no machine code, and its kernels no known registers; empty where it has.
static std::string missingCode(const CodeOptions &options, StringRef ptxas) {
  if (llvm::all_of(options.archs, [](StringRef arch) { return arch == "host"; }))
    return "--arch=host has kernels as loops of this processor";
  if (ptxas == "none")
    return "--ptxas=none asks for PTX alone";
  if (ptxas.empty())
    return "no ptxas is on the PATH or in /usr/local/cuda/bin; name one with --ptxas";
  return "";
}

/// Adds kernels of `arch` with their places on the device that stands for it.
static void describe(const Program &program, ArrayRef<KernelUse> uses, StringRef arch, memory::KernelCode &code) {
  const DeviceModel *model = device.modelOf(arch);
  for (const KernelUse &use : uses) {
    memory::AssembledKernel kernel{use.name, arch.str(), use.registers, use.sharedBytes, use.spilledBytes, {}};
    if (auto number = program.entryNumbers.find(use.name); model && number != program.entryNumbers.end()) {
      const KernelEntry &entry = program.entries[number->second];
      auto productOf = [](const std::array<int64_t, 3> &extents) { return extents[0] * extents[1] * extents[2]; };
      int64_t resident = residentBlocks(device, *model, productOf(entry.block), use.registers, use.sharedBytes);
      double waves = wavesOf(*model, productOf(entry.grid), resident);
      kernel.places = {model->name.str(), resident, waves, fullnessOf(waves)};
    }
    code.kernels.push_back(std::move(kernel));
  }
}

LogicalResult mpt::cuda::buildImages(ModuleOp module, Program &program, const CodeOptions &options, unsigned threads,
                                     const ImageProducts &products) {
  if (program.entries.empty())
    return success();
  std::string ptxas = options.ptxas.empty() ? findPtxas() : options.ptxas;
  if (products.code)
    products.code->missing = missingCode(options, ptxas);
  for (const std::string &arch : options.archs) {
    if (arch == "host") {
      if (failed(buildHostImage(module, program, threads, products.objects)))
        return failure();
      continue;
    }
    const bool exact = arch == warpgroupArch;
    std::optional<int64_t> number = numberOfArch(arch);
    if (!number)
      return module.emitError() << "expected an architecture such as sm_90, got '" << arch << "'";
    FailureOr<std::string> ptx = compileToPtx(*extractKernels(module, program, arch), arch);
    if (failed(ptx))
      return failure();
    if (products.listing)
      *products.listing += *ptx;
    if (!ptxas.empty() && ptxas != "none") {
      SmallVector<KernelUse> uses;
      llvm::Expected<std::string> cubin = assemble(ptxas, *ptx, arch, uses);
      if (!cubin)
        return module.emitError() << llvm::toString(cubin.takeError());
      if (products.code)
        describe(program, uses, arch, *products.code);
      program.images.push_back({exact ? MPT_IMAGE_EXACT_CUBIN : MPT_IMAGE_CUBIN, *number, std::move(*cubin), {}});
    }
    program.images.push_back({exact ? MPT_IMAGE_EXACT_PTX : MPT_IMAGE_PTX, *number, std::move(*ptx), {}});
  }
  return success();
}
