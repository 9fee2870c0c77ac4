// Counts launches and the bytes that they move.
#include "mpt/Memory/KernelReport.h"

#include "Lifetimes.h"

#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;
namespace json = llvm::json;

namespace {

constexpr StringLiteral kColumns[] = {"kernels",       "products",      "convolutions",
                                      "copies",        "fills",         "bytes",
                                      "minimum_bytes", "library_bytes", "host_synchronizations"};

int64_t bytesOf(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  return elementCount(type.getShape()) * elementBytes(type.getElementType());
}

bool isLibraryCall(Operation &op) { return isa<rt::GemmOp, rt::ConvOp>(op); }

/// Buffers that an op of the runtime reads, and those that it writes.
std::pair<SmallVector<Value>, SmallVector<Value>> effectsOf(Operation &op) {
  if (auto launch = dyn_cast<rt::LaunchOp>(op))
    return {llvm::to_vector(launch.getBuffers().take_front(launch.getNumInputs())),
            llvm::to_vector(launch.getBuffers().drop_front(launch.getNumInputs()))};
  if (auto copy = dyn_cast<rt::CopyOp>(op))
    return {{copy.getSource()}, {copy.getTarget()}};
  if (auto zero = dyn_cast<rt::ZeroOp>(op))
    return {{}, {zero.getTarget()}};
  return {};
}

/// Functions that one launch stands for: a GPU kernel may take several.
SmallVector<func::FuncOp> partsOf(rt::LaunchOp launch) {
  SmallVector<func::FuncOp> parts;
  auto module = launch->getParentOfType<ModuleOp>();
  std::string name = launch.getCallee().str();
  while (auto part = module.lookupSymbol<func::FuncOp>(name)) {
    parts.push_back(part);
    name = (launch.getCallee() + "_" + Twine(parts.size())).str();
  }
  return parts;
}

int64_t movedBy(Operation &op) {
  int64_t bytes = 0;
  if (auto launch = dyn_cast<rt::LaunchOp>(op)) {
    for (func::FuncOp part : partsOf(launch))
      for (auto [i, buffer] : llvm::enumerate(launch.getBuffers()))
        if (part.isDeclaration() || !part.getArgument(i).use_empty())
          bytes += bytesOf(buffer);
    return bytes;
  }
  auto [reads, writes] = effectsOf(op);
  for (Value buffer : llvm::concat<Value>(reads, writes))
    bytes += bytesOf(buffer);
  return bytes;
}

/// Least that the work between library calls moves, when no work crosses one.
int64_t minimumOf(func::FuncOp function) {
  struct Use {
    int64_t bytes = 0;
    bool read = false, written = false; // read: before this stretch has written it
  };
  // Uses of buffers by stretch; stretch -1 is a library call.
  std::vector<llvm::MapVector<Value, Use>> stretches(1);
  llvm::DenseMap<Value, llvm::SmallSetVector<int64_t, 4>> users;
  for (Operation &op : function.front()) {
    if (isLibraryCall(op)) {
      for (Value operand : op.getOperands())
        users[ownerOf(operand)].insert(-static_cast<int64_t>(stretches.size()));
      if (!stretches.back().empty())
        stretches.emplace_back();
      continue;
    }
    auto [reads, writes] = effectsOf(op);
    int64_t current = stretches.size() - 1;
    auto note = [&](Value buffer, bool write) {
      Value owner = ownerOf(buffer);
      Use &use = stretches.back()[owner];
      use.bytes = std::max(use.bytes, bytesOf(buffer));
      (write ? use.written : use.read) |= write || !use.written;
      users[owner].insert(current);
    };
    for (Value buffer : reads)
      note(buffer, false);
    for (Value buffer : writes)
      note(buffer, true);
  }
  int64_t bytes = 0;
  for (const auto &stretch : stretches)
    for (const auto &[owner, use] : stretch) {
      bool lasting = !owner.getDefiningOp<rt::AllocOp>();
      if (use.read)
        bytes += use.bytes;
      if (use.written && (lasting || users[owner].size() > 1))
        bytes += use.bytes;
    }
  return bytes;
}

json::Object reportOf(func::FuncOp function) {
  int64_t counts[5] = {}, bytes = 0, library = 0, waits = 0;
  for (Operation &op : function.front()) {
    // What a device does by itself, and what costs nothing; for anything else the host would have to wait.
    waits += !isa<rt::LaunchOp, rt::GemmOp, rt::ConvOp, rt::CopyOp, rt::ZeroOp, rt::AllocOp, rt::ViewOp, rt::StateOp,
                  rt::ConstantOp, func::ReturnOp>(op);
    if (auto launch = dyn_cast<rt::LaunchOp>(op))
      counts[0] += partsOf(launch).size();
    counts[1] += isa<rt::GemmOp>(op);
    counts[2] += isa<rt::ConvOp>(op);
    counts[3] += isa<rt::CopyOp>(op);
    counts[4] += isa<rt::ZeroOp>(op);
    if (isLibraryCall(op)) {
      for (Value operand : op.getOperands())
        library += bytesOf(operand);
    } else {
      bytes += movedBy(op);
    }
  }
  json::Object report;
  for (int i = 0; i < 5; ++i)
    report[kColumns[i]] = counts[i];
  report["bytes"] = bytes;
  report["minimum_bytes"] = minimumOf(function);
  report["library_bytes"] = library;
  report["host_synchronizations"] = waits;
  return report;
}

} // namespace

json::Object mpt::memory::kernelReport(ModuleOp module) {
  json::Object report;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isPrivate() && !function.isDeclaration() && !function->hasAttr(kKernelAttr))
      report[function.getSymName()] = reportOf(function);
  return report;
}

void mpt::memory::printKernelReport(const json::Object &report, raw_ostream &out) {
  out << llvm::formatv("{0,-12}", "function");
  for (StringRef column : kColumns)
    out << llvm::formatv(" {0,14}", column);
  out << llvm::formatv(" {0,8}\n", "ratio");
  for (const auto &[name, value] : report) {
    const json::Object &row = *value.getAsObject();
    out << llvm::formatv("{0,-12}", StringRef(name));
    for (StringRef column : kColumns)
      out << llvm::formatv(" {0,14}", *row.getInteger(column));
    double least = std::max<int64_t>(1, *row.getInteger("minimum_bytes"));
    out << llvm::formatv(" {0,8:f2}\n", *row.getInteger("bytes") / least);
  }
}
