// SPDX-License-Identifier: Apache-2.0
// Counts launches and the bytes that they move.
#include "mpt/Memory/KernelReport.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"
#include "mpt/Memory/Traffic.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;
namespace json = llvm::json;

namespace {

constexpr StringLiteral kColumns[] = {
    "kernels", "products",      "convolutions",  "attentions",         "copies",        "fills",
    "bytes",   "guarded_bytes", "minimum_bytes", "sums_minimum_bytes", "library_bytes", "host_synchronizations"};

unsigned widthOf(StringRef column) { return std::max<unsigned>(14, column.size()); }

int64_t bytesOf(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  return elementCount(type.getShape()) * elementBytes(type.getElementType());
}

bool isLibraryCall(Operation &op) { return isa<rt::GemmOp, rt::ConvOp, rt::AttentionOp, rt::AttentionGradientOp>(op); }

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

/// Bytes that kernels and copies read and write; apart from them, what kernels read only where a convolution's call has
/// not left the sums that they want.
struct Moved {
  int64_t bytes = 0, guarded = 0;
};

Moved movedBy(Operation &op) {
  Moved moved;
  if (auto launch = dyn_cast<rt::LaunchOp>(op)) {
    auto countOf = [](Value buffer) { return cast<MemRefType>(buffer.getType()).getNumElements(); };
    int64_t most = 0;
    for (Value buffer : launch.getBuffers().take_front(launch.getNumInputs()))
      most = std::max(most, countOf(buffer));
    for (func::FuncOp part : partsOf(launch)) {
      auto passes = getAttr<MPTDialect::PassesAttrHelper>(part);
      auto guarded = getAttr<MPTDialect::GuardedAttrHelper>(part);
      auto some = getAttr<MPTDialect::MovedAttrHelper>(part);
      for (auto [i, buffer] : llvm::enumerate(launch.getBuffers())) {
        if (!part.isDeclaration() && part.getArgument(i).use_empty())
          continue;
        bool again = passes && i < launch.getNumInputs() && countOf(buffer) == most;
        bool behind = guarded && llvm::is_contained(guarded.asArrayRef(), static_cast<int64_t>(i));
        int64_t bytes = bytesOf(buffer) * (again ? passes.getInt() : 1);
        if (some && some[i] >= 0)
          bytes = some[i];
        (behind ? moved.guarded : moved.bytes) += bytes;
      }
    }
    return moved;
  }
  auto [reads, writes] = effectsOf(op);
  for (Value buffer : llvm::concat<Value>(reads, writes))
    moved.bytes += bytesOf(buffer);
  return moved;
}

json::Object reportOf(func::FuncOp function) {
  int64_t counts[6] = {}, bytes = 0, guarded = 0, library = 0, waits = 0;
  for (Operation &op : function.front()) {
    // What a device does by itself, and what costs nothing; for anything else the host would have to wait.
    waits += !isLibraryCall(op) && !isa<rt::LaunchOp, rt::CopyOp, rt::ZeroOp, rt::AllocOp, rt::ViewOp, rt::StateOp,
                                        rt::ConstantOp, func::ReturnOp>(op);
    if (auto launch = dyn_cast<rt::LaunchOp>(op))
      counts[0] += partsOf(launch).size();
    counts[1] += isa<rt::GemmOp>(op);
    counts[2] += isa<rt::ConvOp>(op);
    counts[3] += isa<rt::AttentionOp, rt::AttentionGradientOp>(op);
    counts[4] += isa<rt::CopyOp>(op);
    counts[5] += isa<rt::ZeroOp>(op);
    if (isLibraryCall(op)) {
      for (Value operand : op.getOperands())
        library += bytesOf(operand);
    } else {
      Moved moved = movedBy(op);
      bytes += moved.bytes;
      guarded += moved.guarded;
    }
  }
  json::Object report;
  for (int i = 0; i < 6; ++i)
    report[kColumns[i]] = counts[i];
  report["bytes"] = bytes;
  report["guarded_bytes"] = guarded;
  auto least = getAttr<MPTDialect::TrafficAttrHelper>(function);
  report["minimum_bytes"] = least ? least[0] : 0;
  report["sums_minimum_bytes"] = least ? least[1] : 0;
  report["library_bytes"] = library;
  report["host_synchronizations"] = waits;
  return report;
}

} // namespace

json::Object mpt::memory::kernelReport(ModuleOp module) {
  json::Object report;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isPrivate() && !function.isDeclaration() && !hasAttr<MPTDialect::KernelAttrHelper>(function))
      report[function.getSymName()] = reportOf(function);
  return report;
}

void mpt::memory::printKernelReport(const json::Object &report, raw_ostream &out) {
  out << llvm::formatv("{0,-12}", "function");
  for (StringRef column : kColumns)
    out << ' ' << llvm::right_justify(column, widthOf(column));
  out << llvm::formatv(" {0,8} {1,8}\n", "ratio", "to sums");
  for (const auto &[name, value] : report) {
    const json::Object &row = *value.getAsObject();
    out << llvm::formatv("{0,-12}", StringRef(name));
    for (StringRef column : kColumns)
      out << ' ' << llvm::right_justify(std::to_string(*row.getInteger(column)), widthOf(column));
    for (StringRef column : {"minimum_bytes", "sums_minimum_bytes"})
      out << llvm::formatv(" {0,8:f2}", static_cast<double>(*row.getInteger("bytes")) /
                                            std::max<int64_t>(1, *row.getInteger(column)));
    out << "\n";
  }
}
