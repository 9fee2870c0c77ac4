// SPDX-License-Identifier: Apache-2.0
// Adds up the memory of a planned module.
#include "mpt/Memory/Report.h"

#include "Effects.h"
#include "Lifetimes.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Sizes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"
#include "mpt/Memory/Plan.h"

#include "llvm/ADT/StringSet.h"
#include <array>
#include <cmath>
#include <map>
#include <numeric>

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;
namespace json = llvm::json;

namespace {

/// A library call: a GEMM, a convolution or an attention.
bool callsLibrary(Operation *op) {
  auto call = dyn_cast<RuntimeCall>(op);
  return call && isLibraryCall(call.getCallKind());
}

/// The position where the backward pass begins: its first library call. The end of the function when there is none.
int64_t backwardStart(func::FuncOp function) {
  int64_t position = 0;
  for (Operation &op : function.front()) {
    if (statedPart(&op).value_or(TrainingPart::forward) != TrainingPart::forward)
      return position;
    ++position;
  }
  return position;
}

/// The node of the model that an op belongs to.
std::string nodeOf(Location loc) {
  std::string text;
  loc->walk([&](Location inner) {
    if (auto name = dyn_cast<NameLoc>(inner))
      text = name.getName().str();
    return text.empty() ? WalkResult::advance() : WalkResult::interrupt();
  });
  return text.empty() ? "?" : text;
}

std::string textOf(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

/// Purposes of scratch, and their names in the report.
enum Use { Saved, Gradient, Workspace, Other };
constexpr std::array<StringLiteral, 4> useNames = {"saved", "gradients", "workspace", "other"};
using BytesByUse = std::array<int64_t, useNames.size()>;

int64_t sum(const BytesByUse &bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t(0)); }

/// Sums of live bytes over time, by use.
class Timeline {
  std::map<int64_t, BytesByUse> changes;

public:
  /// The live bytes from a position on.
  struct Point {
    int64_t position = 0;
    BytesByUse live = {};
  };
  void add(const Lifetime &lifetime, Use use) {
    changes[lifetime.first][use] += lifetime.bytes;
    changes[lifetime.last + 1][use] -= lifetime.bytes;
  }
  SmallVector<Point> points() const {
    SmallVector<Point> points;
    BytesByUse live = {};
    for (auto [position, change] : changes) {
      for (auto [bytes, by] : llvm::zip_equal(live, change))
        bytes += by;
      points.push_back({position, live});
    }
    return points;
  }
};

/// The first of the points at which a measure of live bytes is largest.
template <typename Measure> Timeline::Point largestOf(ArrayRef<Timeline::Point> points, Measure measure) {
  Timeline::Point best;
  for (const Timeline::Point &point : points)
    if (measure(point.live) > measure(best.live))
      best = point;
  return best;
}

json::Object bytesByUse(const BytesByUse &live) {
  json::Object object;
  for (auto [name, bytes] : llvm::zip_equal(useNames, live))
    object[name] = bytes;
  return object;
}

/// At most 200 points of a timeline, for pictures: of neighbours the one with the most live bytes.
json::Array thinned(ArrayRef<Timeline::Point> points, ArrayRef<Operation *> ops) {
  constexpr size_t most = 200;
  json::Array array;
  for (size_t size = points.size() / most + 1; !points.empty();
       points = points.drop_front(std::min(size, points.size()))) {
    Timeline::Point point = largestOf(points.take_front(size), sum);
    if (!sum(point.live))
      point = points.front();
    json::Object object = bytesByUse(point.live);
    object["at"] = point.position;
    if (size_t(point.position) < ops.size())
      object["node"] = nodeOf(ops[point.position]->getLoc());
    array.push_back(std::move(object));
  }
  return array;
}

/// Buffers that an op which writes state reads; made in the backward pass, they are gradients on their way to the
/// update.
llvm::DenseSet<Value> updateOperands(func::FuncOp function) {
  llvm::DenseSet<Value> result;
  for (auto launch : function.getOps<rt::LaunchOp>()) {
    bool updates = llvm::any_of(writtenBy(launch), [](Value output) {
      auto state = ownerOf(output).getDefiningOp<rt::StateOp>();
      return state && cast<MemRefType>(state.getType()).getRank() > 0;
    });
    if (updates)
      for (Value input : readBy(launch))
        result.insert(ownerOf(input));
  }
  return result;
}

/// Bytes by which GEMMs read more of FP32 parameters than of narrow copies.
int64_t bytesReadMore(func::FuncOp function) {
  int64_t bytes = 0;
  for (auto gemm : function.getOps<rt::GemmOp>())
    if (gemm.getReadAs())
      for (Value operand : {gemm.getA(), gemm.getB()})
        if (auto type = cast<MemRefType>(operand.getType()); type.getElementType().isF32())
          bytes += elementCount(type.getShape()) * 2;
  return bytes;
}

/// The options that keep less state than FP32 with narrow copies, and their cost.
json::Object reportRungs(ModuleOp module, int64_t gradientsGone) {
  int64_t packed = 0, saved = 0, copies = 0, slots = 0;
  llvm::StringSet<> mastered;
  for (auto state : module.getOps<train::StateOp>())
    if (state.getRole() == train::Role::master)
      mastered.insert(state.getOf().value_or(""));
  for (auto state : module.getOps<train::StateOp>()) {
    auto type = cast<ShapedType>(state.getType());
    int64_t elements = dist::shardOf(state).value_or(elementCount(type.getShape()));
    int64_t bytes = elements * elementBytes(type.getElementType());
    if (auto narrow = getAttr<library::LibraryDialect::PackedAttrHelper>(state)) {
      ++packed;
      saved += elements * elementBytes(narrow.getValue());
    } else if (mastered.contains(state.getSymName())) {
      copies += bytes;
    }
    if (state.getRole() != train::Role::slot)
      continue;
    // The saving of codes, less the bytes of their scales.
    StringRef codes = state.getSymName();
    if (codes.consume_back(".scale") && module.lookupSymbol<train::StateOp>(codes))
      slots -= bytes;
    else if (bytes < elements * 4)
      slots += elements * 4 - bytes;
  }
  auto step = module.lookupSymbol<func::FuncOp>("step");
  int64_t readMore = step && !step.isDeclaration() ? bytesReadMore(step) : 0;
  json::Object rungs;
  if (DenseI64ArrayAttr coded = step ? getAttr<MPTDialect::CodedAttrHelper>(step) : DenseI64ArrayAttr())
    rungs["coded_activations"] = json::Object{{"values", coded[0]}, {"saves", coded[1]}};
  if (packed || copies)
    rungs["packed_masters"] =
        json::Object{{"parameters", packed}, {"saves", saved}, {"step_reads_more", readMore}, {"copies_left", copies}};
  if (slots > 0)
    rungs["narrow_slots"] = json::Object{{"saves", slots}};
  auto policy = getAttr<MPTDialect::PolicyAttrHelper>(module);
  auto scaling = policy ? policy.getAs<DictionaryAttr>("loss_scaling") : DictionaryAttr();
  if (auto check = scaling ? scaling.getAs<StringAttr>("check") : StringAttr(); check && check == "parameter")
    rungs["own_checks"] = json::Object{{"saves", gradientsGone}};
  return rungs;
}

/// `gone`: bytes of gradients that are updated with before the longest wait list is in memory, or made after it.
json::Object reportFunction(func::FuncOp function, int64_t state, int64_t &gone) {
  int64_t inputs = 0, outputs = 0, saved = 0, workspace = 0;
  for (BlockArgument argument : function.getArguments())
    (getArgAttr<MPTDialect::OutputAttrHelper>(function, argument.getArgNumber()) ? outputs : inputs) +=
        spanBytes(cast<MemRefType>(argument.getType()));
  SmallVector<Operation *> ops;
  for (Operation &op : function.front())
    ops.push_back(&op);
  int64_t backward = backwardStart(function);
  llvm::DenseSet<Value> updates = updateOperands(function), workspaces;
  for (auto conv : function.getOps<rt::ConvOp>())
    if (conv.getWorkspace()) {
      workspaces.insert(ownerOf(conv.getWorkspace()));
      workspace = std::max(workspace, spanBytes(cast<MemRefType>(conv.getWorkspace().getType())));
    }
  auto useOf = [&](Lifetime &lifetime) {
    Value buffer = lifetime.alloc.getBuffer();
    if (workspaces.contains(buffer))
      return Use::Workspace;
    if (lifetime.first < backward && lifetime.last >= backward)
      return Use::Saved;
    return lifetime.first >= backward && updates.contains(buffer) ? Use::Gradient : Use::Other;
  };
  SmallVector<Lifetime> lifetimes = lifetimesOf(function);
  Timeline timeline;
  SmallVector<Lifetime *> kept;
  for (Lifetime &lifetime : lifetimes) {
    Use use = useOf(lifetime);
    timeline.add(lifetime, use);
    if (use == Use::Gradient)
      gone += lifetime.bytes;
    if (use == Use::Saved) {
      saved += lifetime.bytes;
      kept.push_back(&lifetime);
    }
  }
  SmallVector<Timeline::Point> points = timeline.points();
  auto gradients = [](const BytesByUse &live) { return live[Use::Gradient]; };
  Timeline::Point peak = largestOf(points, sum);
  const int64_t waiting = gradients(largestOf(points, gradients).live);
  gone -= waiting;
  json::Object atPeak = bytesByUse(peak.live);
  atPeak["node"] = ops.empty() ? "?" : nodeOf(ops[peak.position]->getLoc());
  llvm::sort(kept,
             [](Lifetime *a, Lifetime *b) { return std::tie(b->bytes, a->first) < std::tie(a->bytes, b->first); });
  json::Array values;
  for (Lifetime *lifetime : kept)
    values.push_back(json::Object{{"node", nodeOf(lifetime->alloc.getLoc())},
                                  {"type", textOf(lifetime->alloc.getBuffer().getType())},
                                  {"bytes", lifetime->bytes},
                                  {"until", nodeOf(ops[lifetime->last]->getLoc())}});
  llvm::StringSet<> kernels;
  llvm::DenseMap<CallKind, int64_t> counts;
  int64_t libraryCalls = 0;
  for (Operation *op : ops) {
    libraryCalls += callsLibrary(op);
    if (auto call = dyn_cast<RuntimeCall>(op))
      ++counts[call.getCallKind()];
    if (auto launch = dyn_cast<rt::LaunchOp>(op))
      kernels.insert(launch.getCallee());
  }
  auto arena = getAttr<MPTDialect::ArenaBytesAttrHelper>(function);
  return json::Object{{"inputs", inputs},
                      {"outputs", outputs},
                      {"arena", arena ? json::Value(arena.getInt()) : json::Value(nullptr)},
                      {"peak", state + outputs + (arena ? arena.getInt() : 0)},
                      {"lower_bound", sum(peak.live)},
                      {"saved", saved},
                      {"gradients", waiting},
                      {"workspace", workspace},
                      {"at_peak", std::move(atPeak)},
                      {"timeline", thinned(points, ops)},
                      {"saved_values", std::move(values)},
                      {"kernels", int64_t(kernels.size())},
                      {"launches", counts.lookup(CallKind::Kernel)},
                      {"gemms", libraryCalls},
                      {"copies", counts.lookup(CallKind::Copy)}};
}

} // namespace

json::Object mpt::memory::report(ModuleOp module) {
  json::Object state, functions;
  int64_t all = 0;
  for (auto op : module.getOps<train::StateOp>()) {
    auto type = cast<ShapedType>(op.getType());
    int64_t elements = dist::shardOf(op).value_or(elementCount(type.getShape()));
    int64_t bytes = elements * elementBytes(type.getElementType());
    json::Value &total = state[train::stringifyRole(op.getRole())];
    total = total.getAsInteger().value_or(0) + bytes;
    all += bytes;
  }
  int64_t gone = 0; // of the step
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isDeclaration() && !function.isPrivate()) {
      int64_t ofThis = 0;
      functions[function.getSymName()] = reportFunction(function, all, ofThis);
      gone = function.getSymName() == "step" ? ofThis : gone;
    }
  return json::Object{
      {"state", std::move(state)}, {"functions", std::move(functions)}, {"rungs", reportRungs(module, gone)}};
}

/// The largest peak of @gradients, or of all other functions. Without a step, @gradients is a function as any other.
static Peak largestPeak(const json::Object &report, bool ofGradients) {
  Peak largest;
  const json::Object *functions = report.getObject("functions");
  if (!functions)
    return largest;
  // A library of several sizes has each function for each.
  bool trains = functions->getObject("step");
  for (const auto &entry : *functions) {
    const json::Object *function = entry.second.getAsObject();
    if (!function || (trains && nameInFirstSize(entry.first) == "gradients") != ofGradients)
      continue;
    int64_t bytes = function->getInteger("peak").value_or(0);
    if (bytes > largest.bytes || (bytes == largest.bytes && StringRef(entry.first) < largest.function))
      largest = {bytes, entry.first.str()};
  }
  return largest;
}

Peak mpt::memory::peakOf(const json::Object &report) { return largestPeak(report, false); }
Peak mpt::memory::gradientsPeakOf(const json::Object &report) { return largestPeak(report, true); }

/// A bar of so many of `whole`.
static std::string barOf(int64_t bytes, int64_t whole) {
  constexpr int64_t width = 30;
  const double share = static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, whole));
  return std::string(static_cast<size_t>(std::lround(share * width)), '#');
}

/// The plans that a search under a budget has tried.
static void printBudget(const json::Object &budget, raw_ostream &out) {
  out << llvm::formatv("budget of {0:n} bytes (bytes of the largest function; >: taken; time: modelled, as asked: 1)\n",
                       budget.getInteger("bytes").value_or(0));
  int64_t most = 0;
  for (const json::Value &entry : *budget.getArray("rungs"))
    most = std::max(most, entry.getAsObject()->getInteger("peak").value_or(0));
  for (const json::Value &entry : *budget.getArray("rungs")) {
    const json::Object &rung = *entry.getAsObject();
    out << (rung.getBoolean("taken").value_or(false) ? "> " : "  ") << rung.getString("rung").value_or("?") << "\n";
    if (std::optional<StringRef> missing = rung.getString("missing"))
      out << "    no plan: " << *missing << "\n";
    else
      out << llvm::formatv("    {0,16:n} {1,-30} saves {2:n}, moves {3:n} more, time {4:f3}\n",
                           *rung.getInteger("peak"), barOf(*rung.getInteger("peak"), most), *rung.getInteger("saves"),
                           *rung.getInteger("moves_more"), *rung.getNumber("time"));
  }
}

static void printLine(StringRef name, const json::Value &value, raw_ostream &out) {
  out << llvm::formatv("  {0,-14} {1,16:n}", name, value.getAsInteger().value_or(0)) << "\n";
}

/// The entries of an object in the order of their names; none of no object.
static std::map<StringRef, const json::Value *> sorted(const json::Object *object) {
  std::map<StringRef, const json::Value *> entries;
  if (object)
    for (const auto &entry : *object)
      entries[entry.first] = &entry.second;
  return entries;
}

static void printFunction(const json::Object &function, raw_ostream &out) {
  for (auto [key, value] : sorted(&function))
    if (!value->getAsObject() && !value->getAsArray())
      printLine(key, *value, out);
  const json::Object *peak = function.getObject("at_peak");
  if (!peak)
    return;
  out << "  most bytes are live at " << peak->getString("node").value_or("?") << ":\n";
  for (auto [key, value] : sorted(peak))
    if (value->getAsInteger())
      printLine(("  " + key).str(), *value, out);
}

static void printText(const json::Object &report, raw_ostream &out) {
  out << "state (bytes)\n";
  for (auto [role, bytes] : sorted(report.getObject("state")))
    printLine(role, *bytes, out);
  for (auto [name, entries] : sorted(report.getObject("rungs"))) {
    out << name << " (bytes; parameters, values: counts)\n";
    for (auto [key, value] : sorted(entries->getAsObject()))
      printLine(key, *value, out);
    if (int64_t saves = entries->getAsObject()->getInteger("saves").value_or(0))
      out << "  of the peak without it: " << barOf(saves, mpt::memory::peakOf(report).bytes + saves) << "\n";
  }
  if (const json::Object *budget = report.getObject("budget"))
    printBudget(*budget, out);
  for (auto [name, entries] : sorted(report.getObject("functions"))) {
    out << "@" << name << " (bytes; kernels, launches, gemms, copies: counts)\n";
    if (const json::Object *function = entries->getAsObject())
      printFunction(*function, out);
  }
}

void mpt::memory::writeReport(const json::Object &report, bool json, raw_ostream &out) {
  if (json)
    out << llvm::formatv("{0:2}", llvm::json::Value(llvm::json::Object(report))) << "\n";
  else
    printText(report, out);
}
