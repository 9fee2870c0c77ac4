// SPDX-License-Identifier: Apache-2.0
// Gathering and printing of the precision report.
#include "mpt/Precision/Report.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/Policy.h"
#include "mpt/Precision/Settings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;

static std::string text(Type type) {
  std::string result;
  llvm::raw_string_ostream(result) << type;
  return result;
}
/// 0 where an extent is not known.
static int64_t bytesOf(RankedTensorType type) {
  return !type.hasStaticShape() ? 0 : type.getNumElements() * std::max<int64_t>(type.getElementTypeBitWidth(), 8) / 8;
}
static std::string ruleOf(Operation *op) {
  auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(op);
  return decision ? decision.getRule().str() : "";
}

static std::optional<RangeProfile> profileOf(const RangeProfiles *measured, StringRef key) {
  if (!measured || key.empty())
    return std::nullopt;
  auto found = measured->values.find(key.str());
  return found == measured->values.end() ? std::nullopt : std::optional(found->second);
}

static bool isCastNode(Operation *op) {
  auto node = dyn_cast<onnx::NodeOp>(op);
  return node && node.getDomain().empty() && node.getOpType() == "Cast";
}

/// A conversion between float types, with its operand and result; nulls for other ops.
static std::pair<RankedTensorType, RankedTensorType> floatCast(Operation *op) {
  if (!isa<CastOp>(op) && !isCastNode(op))
    return {};
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto to = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  bool isFloat = from && to && isa<FloatType>(from.getElementType()) && isa<FloatType>(to.getElementType());
  return isFloat ? std::make_pair(from, to) : std::pair<RankedTensorType, RankedTensorType>();
}
static bool rounds(RankedTensorType from, RankedTensorType to) {
  const llvm::fltSemantics &a = cast<FloatType>(from.getElementType()).getFloatSemantics();
  return !APFloat::isRepresentableBy(a, cast<FloatType>(to.getElementType()).getFloatSemantics());
}

static void addOp(PrecisionReport &report, StringRef function, Operation *op, const ValueKeys &keys,
                  const RangeProfiles *measured) {
  std::string node = llvm::json::fixUTF8(nodeName(op->getLoc()));
  if (auto note = getAttr<MPTDialect::RangeAttrHelper>(op))
    report.ranges.push_back({node, note.str()});
  if (auto [from, to] = floatCast(op); from)
    report.casts.push_back({function.str(), node, text(from), text(to), bytesOf(from) + bytesOf(to), rounds(from, to)});
  if (isa<CastOp>(op) || floatCast(op).first)
    return;
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  std::string numericClass = semantics ? stringifyNumericClass(semantics.getNumericClass()).str() : "";
  for (OpResult result : op->getResults())
    if (auto type = dyn_cast<RankedTensorType>(result.getType()); type && isa<FloatType>(type.getElementType()))
      report.values.push_back({function.str(), node, ruleName(op), numericClass, text(type), ruleOf(op),
                               result.getResultNumber(), bytesOf(type), keys.of(result),
                               profileOf(measured, keys.of(result))});
}

PrecisionReport mpt::makePrecisionReport(ModuleOp module, const RangeProfiles *measured) {
  PrecisionReport report;
  ValueKeys keys(module);
  PrecisionSettings settings = PrecisionSettings::of(module);
  report.policy = settings.name;
  report.note = settings.note;
  report.products = settings.products;
  report.device = settings.timedDevice;
  report.libraries = settings.timedLibraries;
  if (settings.scaling.mode != Scaling::none)
    report.lossScale = settings.scaling.init;
  for (const ErrorBound &bound : settings.bounds)
    report.errors.push_back({bound.output, bound.error});
  if (measured)
    report.measuredSteps = measured->steps;
  for (auto state : module.getOps<train::StateOp>()) {
    auto type = cast<RankedTensorType>(state.getType());
    report.states.push_back({state.getTensorName().str(), train::stringifyRole(state.getRole()).str(), text(type),
                             ruleOf(state), bytesOf(type), profileOf(measured, ("state|" + state.getSymName()).str())});
    if (auto note = getAttr<MPTDialect::RangeAttrHelper>(state))
      report.ranges.push_back({state.getTensorName().str(), note.str()});
  }
  auto manifest = getAttr<MPTDialect::ManifestAttrHelper>(module);
  if (auto held = manifest ? manifest.getAs<DictionaryAttr>("held") : DictionaryAttr())
    for (NamedAttribute entry : held)
      report.held.push_back({entry.getName().str(), cast<StringAttr>(entry.getValue()).str()});
  for (auto function : module.getOps<func::FuncOp>())
    function.getBody().walk<WalkOrder::PreOrder>(
        [&](Operation *inner) { addOp(report, function.getSymName(), inner, keys, measured); });
  return report;
}

std::vector<ReportTotals> mpt::totalsOf(const PrecisionReport &report) {
  llvm::MapVector<StringRef, ReportTotals> totals;
  for (const ReportValue &value : report.values) {
    ReportTotals &t = totals[value.function];
    bool narrow = !StringRef(value.type).ends_with("f32>") && !StringRef(value.type).ends_with("f64>");
    ++(narrow ? t.narrow : t.wide);
    (narrow ? t.narrowBytes : t.wideBytes) += value.bytes;
  }
  for (const ReportCast &cast : report.casts) {
    ReportTotals &t = totals[cast.function];
    ++t.casts;
    t.castBytes += cast.bytes;
    t.lossy += cast.lossy;
  }
  std::vector<ReportTotals> rows;
  for (auto &[name, t] : totals) {
    t.function = name.str();
    rows.push_back(std::move(t));
  }
  return rows;
}

std::string mpt::measuredOn(const PrecisionReport &report) {
  return report.device + (report.libraries.empty() ? "" : ", " + report.libraries);
}

void mpt::printText(const PrecisionReport &report, raw_ostream &out) {
  out << "precision report, policy " << (report.policy.empty() ? "none" : report.policy) << "\n";
  if (!report.note.empty())
    out << report.note << "\n";
  out << "\nstates\n";
  for (const ReportState &state : report.states)
    out << llvm::formatv("  {0,-10} {1} : {2}{3}{4}\n", state.role, state.name, state.type,
                         state.rule.empty() ? "" : "  because ", state.rule);
  for (const ReportRange &held : report.held)
    out << llvm::formatv("  {0,-10} {1}  because {2}\n", "held", held.where, held.note);
  StringRef function;
  for (const ReportValue &value : report.values) {
    if (function != value.function)
      out << "\nvalues of " << (function = value.function) << "\n";
    out << llvm::formatv("  {0} {1}#{2} : {3}  {4}{5}{6}\n", value.node.empty() ? "-" : value.node, value.op,
                         value.result, value.type, value.numericClass, value.rule.empty() ? "" : "  because ",
                         value.rule);
  }
  if (!report.casts.empty())
    out << "\ncasts\n";
  for (const ReportCast &cast : report.casts)
    out << llvm::formatv("  {0} {1} : {2} to {3}, {4} bytes{5}\n", cast.function, cast.node.empty() ? "-" : cast.node,
                         cast.from, cast.to, cast.bytes, cast.lossy ? "" : ", exact");
  if (!report.ranges.empty())
    out << "\nconstants out of range\n";
  for (const ReportRange &range : report.ranges)
    out << "  " << (range.where.empty() ? "-" : range.where) << ": " << range.note << "\n";
  if (!report.errors.empty())
    out << "\nerrors by the model (mpt-run --certify measures them)\n";
  for (const ReportError &error : report.errors)
    out << llvm::formatv("  {0}: {1:e1}\n", error.output, error.bound);
  if (!report.products.empty())
    out << "\nproducts, measured on " << measuredOn(report) << "\n";
  for (const MeasuredProduct &p : report.products)
    out << llvm::formatv("  {0}: {1:f1} us in 16 bits, {2:f1} us in 8 bits with conversions; {3} of {4} in 8 bits\n",
                         p.product, p.wide, p.narrow, p.narrowOps, p.ops);
  out << "\ntotals\n";
  for (const ReportTotals &t : totalsOf(report))
    out << llvm::formatv(
        "  {0}: {1} narrow values ({2} bytes), {3} wide ({4} bytes), {5} casts ({6} bytes, {7} rounding)\n", t.function,
        t.narrow, t.narrowBytes, t.wide, t.wideBytes, t.casts, t.castBytes, t.lossy);
}

llvm::json::Value mpt::toJSON(const PrecisionReport &report) {
  llvm::json::Array held, states, values, casts, ranges, errors, totals, products;
  for (const ReportState &s : report.states)
    states.push_back(
        llvm::json::Object{{"name", s.name}, {"role", s.role}, {"type", s.type}, {"rule", s.rule}, {"bytes", s.bytes}});
  for (const ReportValue &v : report.values) {
    llvm::json::Object value{{"function", v.function},  {"node", v.node}, {"op", v.op},     {"result", v.result},
                             {"class", v.numericClass}, {"type", v.type}, {"rule", v.rule}, {"bytes", v.bytes}};
    if (v.profile)
      value["measured"] = v.profile->toJSON();
    values.push_back(std::move(value));
  }
  for (const ReportCast &c : report.casts)
    casts.push_back(llvm::json::Object{{"function", c.function},
                                       {"node", c.node},
                                       {"from", c.from},
                                       {"to", c.to},
                                       {"bytes", c.bytes},
                                       {"rounds", c.lossy}});
  for (const ReportRange &h : report.held)
    held.push_back(llvm::json::Object{{"tensor", h.where}, {"why", h.note}});
  for (const ReportRange &r : report.ranges)
    ranges.push_back(llvm::json::Object{{"where", r.where}, {"note", r.note}});
  for (const ReportError &e : report.errors)
    errors.push_back(llvm::json::Object{{"output", e.output}, {"bound", e.bound}});
  for (const MeasuredProduct &p : report.products)
    products.push_back(llvm::json::Object{
        {"product", p.product}, {"us_16", p.wide}, {"us_8", p.narrow}, {"ops", p.ops}, {"ops_8", p.narrowOps}});
  for (const ReportTotals &t : totalsOf(report))
    totals.push_back(llvm::json::Object{{"function", t.function},
                                        {"narrow_values", t.narrow},
                                        {"narrow_bytes", t.narrowBytes},
                                        {"wide_values", t.wide},
                                        {"wide_bytes", t.wideBytes},
                                        {"casts", t.casts},
                                        {"cast_bytes", t.castBytes},
                                        {"rounding_casts", t.lossy}});
  llvm::json::Object all{{"policy", report.policy},     {"note", report.note},        {"states", std::move(states)},
                         {"values", std::move(values)}, {"casts", std::move(casts)},  {"ranges", std::move(ranges)},
                         {"errors", std::move(errors)}, {"totals", std::move(totals)}};
  if (!report.held.empty())
    all["held"] = std::move(held);
  if (!report.products.empty()) {
    all["products"] = std::move(products);
    all["measured_on"] = measuredOn(report);
  }
  return all;
}
