// SPDX-License-Identifier: Apache-2.0
// GPU kernels of the tests.
#include "DeviceKernels.h"

#include "KernelRunner.h"
#include "mpt/Lowering/Emulation/Emulation.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Target/Ptx.h"
#include "mpt/Target/Target.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mpt;

namespace mpt::cuda {
std::unique_ptr<target::Target> createTarget();
}

int assembledKernels = 0;
std::set<std::string> metSchedules;
bool testPlanted = false;

namespace {

std::string findAssembler() {
  static const std::string path = [] {
    if (auto found = llvm::sys::findProgramByName("ptxas"))
      return *found;
    if (auto found = llvm::sys::findProgramByName("ptxas", {"/usr/local/cuda/bin"}))
      return *found;
    return std::string();
  }();
  return path;
}

/// True when `text` assembles and every kernel in it keeps its values in registers.
bool assembles(const std::string &text, llvm::StringRef arch) {
  std::string assembler = findAssembler();
  if (assembler.empty())
    return true;
  llvm::SmallString<128> source, log;
  int descriptor;
  if (llvm::sys::fs::createTemporaryFile("kernel", "ptx", descriptor, source) ||
      llvm::sys::fs::createTemporaryFile("kernel", "log", log))
    return false;
  llvm::raw_fd_ostream(descriptor, /*shouldClose=*/true) << text;
  std::string option = ("-arch=" + arch).str();
  llvm::StringRef arguments[] = {assembler, option, "-v", "-O1", "-o", "/dev/null", source};
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(log), llvm::StringRef(log)};
  int result = llvm::sys::ExecuteAndWait(assembler, arguments, std::nullopt, redirects);
  std::string report;
  if (auto file = llvm::MemoryBuffer::getFile(log))
    report = (*file)->getBuffer().str();
  llvm::sys::fs::remove(source);
  llvm::sys::fs::remove(log);
  llvm::StringRef rest = report;
  bool spills = false;
  for (size_t at = rest.find(" bytes spill"); at != llvm::StringRef::npos; at = rest.find(" bytes spill", at + 1))
    spills |= rest[at - 1] != '0' || rest[at - 2] != ' ';
  if (result == 0 && !spills) {
    ++assembledKernels;
    return true;
  }
  llvm::errs() << arch << ": " << report << "\n" << text << "\n";
  return false;
}

} // namespace

FailureOr<KernelInfo> emitForDevice(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                    ArrayRef<MemRefType> outputs, int64_t &scratchBytes) {
  SmallVector<GpuScheduleMaker> schedules;
  if (testPlanted)
    schedules.push_back(makeSerialSchedule);
  llvm::append_range(schedules, gpuSchedules());
  static const DeviceDescription &device = *cuda::createTarget()->capabilities().device;
  FailureOr<GpuKernelInfo> info = emitGpuKernel(builder, fusion, inputs, outputs, "kernel", device, {}, schedules);
  if (failed(info))
    return failure();
  scratchBytes = info->scratchBytes;
  auto module = fusion->getParentOfType<ModuleOp>();
  SmallVector<func::FuncOp> launches;
  for (GpuLaunch &launch : info->launches) {
    launches.push_back(launch.function);
    metSchedules.insert(cast<StringAttr>(getAttr<MPTDialect::ScheduleAttrHelper>(launch.function)).str());
  }
  if (std::getenv("MPT_TEST_PRINT"))
    module->dump();
  for (llvm::StringRef arch : {"sm_80", "sm_90", "sm_100"}) {
    OwningOpRef<ModuleOp> kernels = ModuleOp::create(module.getLoc());
    for (Operation &op : *module.getBody())
      if (hasAttr<MPTDialect::GridAttrHelper>(&op) || isa<memref::GlobalOp>(op))
        kernels->push_back(op.clone());
    FailureOr<std::string> text = cuda::compileToPtx(*kernels, arch);
    if (failed(text) || !assembles(*text, arch))
      return failure();
  }
  FailureOr<func::FuncOp> emulated = emulateGpuKernel(builder, launches, "kernel");
  if (failed(emulated))
    return failure();
  KernelInfo result{*emulated, 1, 1, {}};
  ArrayRef<int64_t> pairs = cast<DenseI64ArrayAttr>(getAttr<MPTDialect::InPlaceAttrHelper>(*emulated)).asArrayRef();
  for (; pairs.size() >= 2; pairs = pairs.drop_front(2))
    result.inPlace.push_back({pairs[0], pairs[1]});
  return result;
}
