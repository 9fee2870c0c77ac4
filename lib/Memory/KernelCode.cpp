// SPDX-License-Identifier: Apache-2.0
// Registers, shared memory and waves of launched kernels, as lines of the report of kernels.
// Matcher: launches, and loops around them.
#include "mpt/Memory/KernelCode.h"

#include "Kernels.h"
#include "Traffic.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;
namespace json = llvm::json;

namespace {

constexpr StringLiteral kRows = "kernel_code", kMissing = "kernel_code_missing";

struct Launches {
  int64_t count = 0, bytes = 0;
};

/// Adds the launches of a block, `times` times.
void count(Block &block, int64_t times, llvm::MapVector<Operation *, Launches> &launches) {
  for (Operation &op : block) {
    if (auto loop = dyn_cast<rt::RepeatOp>(op))
      count(loop.getBody().front(), times * static_cast<int64_t>(loop.getCount()), launches);
    if (auto launch = dyn_cast<rt::LaunchOp>(op))
      for (func::FuncOp part : partsOf(launch)) {
        Launches &known = launches[part];
        known.count += times;
        known.bytes += times * movedByPart(launch, part).bytes;
      }
  }
}

int64_t productOf(DenseI64ArrayAttr extents) {
  int64_t product = 1;
  for (int64_t extent : extents.asArrayRef())
    product *= extent;
  return product;
}

json::Object objectOf(const AssembledKernel &kernel) {
  json::Object object{{"registers", kernel.registers},
                      {"shared_bytes", kernel.sharedBytes},
                      {"spilled_bytes", kernel.spilledBytes},
                      {"device", nullptr}};
  if (kernel.places) {
    object["device"] = kernel.places->device;
    object["blocks_a_multiprocessor"] = kernel.places->blocks;
    object["waves"] = kernel.places->waves;
    object["full"] = kernel.places->full;
  }
  return object;
}

constexpr char kLine[] = "{0,-14} {1,8} {2,8} {3,7} {4,-7} {5,-6} {6,9} {7,7} {8,7} {9,9} {10,8} {11,5}  {12}: {13}\n";

} // namespace

json::Array mpt::memory::launchedKernels(func::FuncOp function) {
  llvm::MapVector<Operation *, Launches> launches;
  count(function.front(), 1, launches);
  json::Array rows;
  for (auto [kernel, known] : launches) {
    auto grid = getAttr<MPTDialect::GridAttrHelper>(kernel), block = getAttr<MPTDialect::BlockAttrHelper>(kernel);
    if (!grid || !block)
      continue;
    auto textOf = [](StringAttr text) { return text ? text.getValue() : StringRef(); };
    rows.push_back(json::Object{{"kernel", cast<func::FuncOp>(kernel).getSymName()},
                                {"launches", known.count},
                                {"bytes", known.bytes},
                                {"schedule", textOf(getAttr<MPTDialect::ScheduleAttrHelper>(kernel))},
                                {"operations", textOf(getAttr<MPTDialect::OpsAttrHelper>(kernel))},
                                {"blocks", productOf(grid)},
                                {"threads", productOf(block)},
                                {"archs", nullptr}});
  }
  return rows;
}

void mpt::memory::addKernelCode(json::Object &report, const KernelCode &code) {
  llvm::StringMap<json::Object> archs;
  for (const AssembledKernel &kernel : code.kernels)
    archs[kernel.kernel][kernel.arch] = objectOf(kernel);
  for (auto &[name, value] : report) {
    json::Object &function = *value.getAsObject();
    json::Array &rows = *function.getArray(kRows);
    for (json::Value &row : rows) {
      json::Object &kernel = *row.getAsObject();
      if (auto found = archs.find(*kernel.getString("kernel")); found != archs.end())
        kernel["archs"] = json::Object(found->second);
    }
    if (!rows.empty() && !code.missing.empty())
      function[kMissing] = code.missing;
    else
      function[kMissing] = nullptr;
  }
}

void mpt::memory::printKernelCode(StringRef function, const json::Object &report, raw_ostream &out) {
  const json::Array &rows = *report.getArray(kRows);
  if (rows.empty())
    return;
  out << function << ": kernels, and the blocks of one that share a multiprocessor (blocks/SM)\n";
  out << llvm::formatv(kLine, "kernel", "launches", "blocks", "threads", "arch", "device", "registers", "shared",
                       "spilled", "blocks/SM", "waves", "full", "schedule", "operations");
  for (const json::Value &row : rows) {
    const json::Object &kernel = *row.getAsObject();
    auto print = [&](StringRef arch, const json::Object &code) {
      auto whole = [&](StringRef key) {
        std::optional<int64_t> number = code.getInteger(key);
        return number ? std::to_string(*number) : "-";
      };
      auto real = [&](StringRef key) {
        std::optional<double> number = code.getNumber(key);
        return number ? llvm::formatv("{0:f2}", *number).str() : "-";
      };
      out << llvm::formatv(kLine, *kernel.getString("kernel"), *kernel.getInteger("launches"),
                           *kernel.getInteger("blocks"), *kernel.getInteger("threads"), arch,
                           code.getString("device").value_or("-"), whole("registers"), whole("shared_bytes"),
                           whole("spilled_bytes"), whole("blocks_a_multiprocessor"), real("waves"), real("full"),
                           *kernel.getString("schedule"), *kernel.getString("operations"));
    };
    const json::Object *archs = kernel.getObject("archs");
    if (!archs) {
      print("-", {});
      continue;
    }
    auto names = llvm::map_to_vector(*archs, [](const auto &entry) { return StringRef(entry.first); });
    llvm::sort(names, [](StringRef a, StringRef b) { return std::pair(a.size(), a) < std::pair(b.size(), b); });
    for (StringRef arch : names)
      print(arch, *archs->getObject(arch));
  }
  if (std::optional<StringRef> missing = report.getString(kMissing))
    out << function << ": registers, blocks a multiprocessor and waves are not known: " << *missing << "\n";
}
