// Adds up the memory of a planned module.
#include "mpt/Memory/Report.h"

#include "Lifetimes.h"

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"
#include "mpt/Memory/Plan.h"

#include "llvm/ADT/StringSet.h"
#include <map>

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;
namespace json = llvm::json;

namespace {

bool isProduct(Operation &op) { return isa<rt::GemmOp, rt::ConvOp>(op); }

/// The position where the backward pass begins: gradients carry the location of the op they belong to, so it is the
/// first product whose location came up before another product's. The end of the function when there is none.
int64_t backwardStart(func::FuncOp function) {
  llvm::DenseMap<Attribute, int64_t> seen;
  int64_t count = 0, products = 0;
  Attribute previous;
  for (Operation &op : function.front()) {
    if (isProduct(op)) {
      Attribute location = op.getLoc();
      if (location != previous && seen.count(location))
        return count;
      seen.try_emplace(location, products++);
      previous = location;
    }
    ++count;
  }
  return count;
}

json::Object reportFunction(func::FuncOp function) {
  int64_t inputs = 0, outputs = 0, saved = 0, workspace = 0, peak = 0;
  for (BlockArgument argument : function.getArguments())
    (function.getArgAttr(argument.getArgNumber(), kOutputAttr) ? outputs : inputs) +=
        spanBytes(cast<MemRefType>(argument.getType()));
  int64_t backward = backwardStart(function);
  std::map<int64_t, int64_t> changes; // position to change of the live sum
  for (Lifetime &lifetime : lifetimesOf(function)) {
    if (lifetime.first < backward && lifetime.last >= backward)
      saved += lifetime.bytes;
    changes[lifetime.first] += lifetime.bytes;
    changes[lifetime.last + 1] -= lifetime.bytes;
  }
  int64_t live = 0;
  for (auto [position, change] : changes)
    peak = std::max(peak, live += change);
  llvm::StringSet<> kernels;
  int64_t launches = 0, products = 0, copies = 0;
  for (Operation &op : function.front()) {
    products += isProduct(op);
    copies += isa<rt::CopyOp>(op);
    if (auto launch = dyn_cast<rt::LaunchOp>(op)) {
      ++launches;
      kernels.insert(launch.getCallee());
    }
    if (auto conv = dyn_cast<rt::ConvOp>(op); conv && conv.getWorkspace())
      workspace = std::max(workspace, spanBytes(cast<MemRefType>(conv.getWorkspace().getType())));
  }
  auto arena = function->getAttrOfType<IntegerAttr>(kArenaAttr);
  return json::Object{{"inputs", inputs},
                      {"outputs", outputs},
                      {"arena", arena ? json::Value(arena.getInt()) : json::Value(nullptr)},
                      {"live_peak", peak},
                      {"saved", saved},
                      {"workspace", workspace},
                      {"kernels", int64_t(kernels.size())},
                      {"launches", launches},
                      {"products", products},
                      {"copies", copies}};
}

} // namespace

json::Object mpt::memory::report(ModuleOp module) {
  json::Object state, functions;
  for (auto op : module.getOps<train::StateOp>()) {
    auto type = cast<ShapedType>(op.getType());
    int64_t bytes = elementCount(type.getShape()) * elementBytes(type.getElementType());
    json::Value &total = state[train::stringifyRole(op.getRole())];
    total = total.getAsInteger().value_or(0) + bytes;
  }
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isDeclaration() && !function.isPrivate())
      functions[function.getSymName()] = reportFunction(function);
  return json::Object{{"state", std::move(state)}, {"functions", std::move(functions)}};
}

void mpt::memory::printReport(const json::Object &report, raw_ostream &out) {
  auto line = [&](StringRef name, const json::Value &value) {
    int64_t bytes = value.getAsInteger().value_or(0);
    out << llvm::formatv("  {0,-14} {1,16:n}", name, bytes) << "\n";
  };
  auto sorted = [](const json::Object &object) {
    std::map<StringRef, const json::Value *> entries;
    for (const auto &entry : object)
      entries[entry.first] = &entry.second;
    return entries;
  };
  out << "state (bytes)\n";
  if (const json::Object *state = report.getObject("state"))
    for (auto [role, bytes] : sorted(*state))
      line(role, *bytes);
  if (const json::Object *functions = report.getObject("functions"))
    for (auto [name, entries] : sorted(*functions)) {
      out << "@" << name << " (bytes; kernels, launches, products, copies: counts)\n";
      if (const json::Object *object = entries->getAsObject())
        for (auto [key, value] : sorted(*object))
          line(key, *value);
    }
}
