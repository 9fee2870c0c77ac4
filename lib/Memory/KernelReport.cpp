// SPDX-License-Identifier: Apache-2.0
// Counts launches and the bytes that they move.
#include "mpt/Memory/KernelReport.h"

#include "Effects.h"
#include "Kernels.h"
#include "Traffic.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Evaluation/TensorCoreProducts.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/KernelCode.h"
#include "mpt/Memory/Layout.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;
namespace json = llvm::json;

namespace {

constexpr StringLiteral kColumns[] = {"kernels",
                                      "gemms",
                                      "convolutions",
                                      "attentions",
                                      "recurrences",
                                      "copies",
                                      "fills",
                                      "bytes",
                                      "guarded_bytes",
                                      "minimum_bytes",
                                      "sums_minimum_bytes",
                                      "library_bytes",
                                      "host_synchronizations"};

constexpr std::pair<StringLiteral, CallKind> kCounted[] = {{"kernels", CallKind::Kernel},
                                                           {"gemms", CallKind::Gemm},
                                                           {"convolutions", CallKind::Convolution},
                                                           {"attentions", CallKind::Attention},
                                                           {"recurrences", CallKind::Recurrence},
                                                           {"copies", CallKind::Copy},
                                                           {"fills", CallKind::Fill}};

unsigned widthOf(StringRef column) { return std::max<unsigned>(14, column.size()); }

/// Launches and calls that a call of the program is.
int64_t callsOf(Operation &op) {
  auto launch = dyn_cast<rt::LaunchOp>(op);
  return launch ? static_cast<int64_t>(partsOf(launch).size()) : 1;
}

/// The traffic of all parts of a launch, or of a copy or fill.
Moved movedBy(Operation &op) {
  Moved moved;
  if (auto launch = dyn_cast<rt::LaunchOp>(op)) {
    for (func::FuncOp part : partsOf(launch)) {
      Moved by = movedByPart(launch, part);
      moved.bytes += by.bytes;
      moved.guarded += by.guarded;
    }
    return moved;
  }
  for (Value buffer : readBy(&op))
    moved.bytes += bytesOf(buffer);
  for (Value buffer : writtenBy(&op))
    moved.bytes += bytesOf(buffer);
  return moved;
}

/// The channels that a convolution of 16 bits lacks for Tensor Cores, whose operands have channels in eights; null
/// where it lacks none. Depthwise ones have a kernel without them.
json::Value channelsOf(rt::ConvOp conv) {
  auto shape = [](Value buffer) { return cast<MemRefType>(buffer.getType()).getShape(); };
  constexpr int64_t unit = 8;
  Value operand = conv.getKind() == rt::ConvKind::backward_data ? conv.getW() : conv.getX();
  const int64_t groups = static_cast<int64_t>(conv.getGroups());
  const int64_t in = shape(conv.getX())[1] / groups, out = shape(conv.getY())[1] / groups;
  bool isDepthwise = groups > 1 && in == 1 && out == 1;
  if (elementBytes(cast<MemRefType>(operand.getType()).getElementType()) > 2 || isDepthwise ||
      (in % unit == 0 && out % unit == 0))
    return nullptr;
  auto wanted = [&](int64_t channels) { return static_cast<int64_t>(llvm::alignTo(channels, unit)); };
  return json::Object{{"node", nodeName(conv.getLoc())},
                      {"kind", stringifyEnum(conv.getKind())},
                      {"channels", json::Array{in, out}},
                      {"for_tensor_cores", json::Array{wanted(in), wanted(out)}}};
}

/// The work of a function's calls, loops with all their passes. A recurrence is a call of a library to bounds of
/// traffic, so the traffic of its loop counts as a library's.
struct Work {
  llvm::DenseMap<CallKind, int64_t> counts;
  int64_t bytes = 0, guarded = 0, library = 0, waits = 0;

  void add(Block &block, int64_t times = 1, bool inLoop = false) {
    for (Operation &op : block) {
      // Whatever is no op of the runtime, a device does not do by itself: the host would have to wait.
      waits += !isa<rt::RTDialect>(op.getDialect()) && !op.hasTrait<OpTrait::IsTerminator>();
      auto call = dyn_cast<RuntimeCall>(op);
      if (!call)
        continue;
      counts[call.getCallKind()] += times * callsOf(op);
      if (auto loop = dyn_cast<rt::RepeatOp>(op)) {
        add(loop.getBody().front(), times * static_cast<int64_t>(loop.getCount()), true);
      } else if (isLibraryCall(call.getCallKind())) {
        for (Value operand : op.getOperands())
          library += times * bytesOf(operand);
      } else {
        Moved moved = movedBy(op);
        (inLoop ? library : bytes) += times * moved.bytes;
        guarded += times * moved.guarded;
      }
    }
  }
};

/// GEMMs of 8-bit operands whose sums have fewer bits than FP32's on `core`; null where there are none.
json::Value narrowSumsOf(func::FuncOp function, const TensorCore &core) {
  int64_t gemms = 0;
  TensorCoreSums sums{};
  function.walk([&](rt::GemmOp gemm) {
    std::optional<OperandFormat> a = operandFormatOf(getElementTypeOrSelf(gemm.getA().getType())),
                                 b = operandFormatOf(getElementTypeOrSelf(gemm.getB().getType()));
    std::optional<TensorCoreSums> found = a && b ? core.sums(*a, *b) : std::nullopt;
    if (!found || !found->narrowerThanF32())
      return;
    ++gemms;
    sums = *found;
  });
  if (gemms == 0)
    return nullptr;
  return json::Object{{"core", core.name().str()},
                      {"gemms", gemms},
                      {"bits", sums.resultBits},
                      {"products", sums.promoted},
                      {"typical_error", sums.typicalError(sums.promoted)}};
}

json::Object reportOf(func::FuncOp function, bool onDevice, ArrayRef<TensorCore> cores) {
  Work work;
  work.add(function.front());
  json::Array narrow;
  for (auto conv : function.getOps<rt::ConvOp>())
    if (json::Value found = onDevice ? channelsOf(conv) : nullptr; found.getAsObject())
      narrow.push_back(std::move(found));
  json::Array apart;
  if (auto pairs = getAttr<library::LibraryDialect::ApartAttrHelper>(function))
    for (size_t i = 0; i + 1 < pairs.size(); i += 2)
      apart.push_back(json::Object{{"node", cast<StringAttr>(pairs[i]).getValue()},
                                   {"reason", cast<StringAttr>(pairs[i + 1]).getValue()}});
  json::Object report;
  report["narrow_channels"] = std::move(narrow);
  json::Array sums;
  for (const TensorCore &core : cores)
    if (json::Value found = narrowSumsOf(function, core); found.getAsObject())
      sums.push_back(std::move(found));
  report["narrow_sums"] = std::move(sums);
  report["unfused_attentions"] = std::move(apart);
  report["kernel_code"] = launchedKernels(function);
  report["kernel_code_missing"] = nullptr;
  for (auto [column, kind] : kCounted)
    report[column] = work.counts.lookup(kind);
  report["bytes"] = work.bytes;
  report["guarded_bytes"] = work.guarded;
  auto least = getAttr<MPTDialect::TrafficAttrHelper>(function);
  report["minimum_bytes"] = least ? least[0] : 0;
  report["sums_minimum_bytes"] = least ? least[1] : 0;
  report["library_bytes"] = work.library;
  report["host_synchronizations"] = work.waits;
  return report;
}

} // namespace

json::Object mpt::memory::kernelReport(ModuleOp module, ArrayRef<TensorCore> cores) {
  json::Object report;
  bool onDevice = llvm::any_of(module.getOps<func::FuncOp>(),
                               [](func::FuncOp function) { return hasAttr<MPTDialect::GridAttrHelper>(function); });
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isPrivate() && !function.isDeclaration() && !hasAttr<MPTDialect::KernelAttrHelper>(function))
      report[function.getSymName()] = reportOf(function, onDevice, cores);
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
  for (const auto &[name, value] : report)
    for (const json::Value &entry : *value.getAsObject()->getArray("narrow_channels")) {
      const json::Object &conv = *entry.getAsObject();
      auto pair = [&](StringRef key) {
        const json::Array &numbers = *conv.getArray(key);
        return llvm::formatv("{0} and {1}", *numbers[0].getAsInteger(), *numbers[1].getAsInteger()).str();
      };
      out << llvm::formatv("{0}: convolution '{1}' ({2}) has {3} channels a group: Tensor Cores want {4}\n",
                           StringRef(name), *conv.getString("node"), *conv.getString("kind"), pair("channels"),
                           pair("for_tensor_cores"));
    }
  for (const auto &[name, value] : report)
    for (const json::Value &entry : *value.getAsObject()->getArray("narrow_sums")) {
      const json::Object &sums = *entry.getAsObject();
      out << llvm::formatv(
          "{0}: sums of {1} GEMMs with 8-bit operands have {2} bits on {3}, {4} products at a time, and "
          "add up in FP32: errors of some {5:e1} of a sum\n",
          StringRef(name), *sums.getInteger("gemms"), *sums.getInteger("bits"), *sums.getString("core"),
          *sums.getInteger("products"), *sums.getNumber("typical_error"));
    }
  for (const auto &[name, value] : report)
    for (const json::Value &entry : *value.getAsObject()->getArray("unfused_attentions")) {
      const json::Object &softmax = *entry.getAsObject();
      out << llvm::formatv("{0}: attention at '{1}' is {2}\n", StringRef(name), *softmax.getString("node"),
                           *softmax.getString("reason"));
    }
  for (const auto &[name, value] : report)
    printKernelCode(name, *value.getAsObject(), out);
}
