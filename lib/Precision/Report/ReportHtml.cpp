// SPDX-License-Identifier: Apache-2.0
// The precision report as one HTML page: decisions, casts, and histograms of exponents beside the types' ranges.
#include "mpt/Precision/Report.h"

#include "HtmlPage.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Axis of the histograms: exponents outside are counted in the first and last bar.
constexpr int kFirst = -48, kLast = 24, kBar = 3, kHeight = 34, kLegendBar = 8;
/// Shares of a tensor beyond which a value is shown as at risk.
constexpr double kOverflowAlarm = 0.0, kUnderflowAlarm = 0.01, kSubnormalAlarm = 0.1;

std::string escaped(StringRef text) {
  std::string result;
  for (char c : text)
    switch (c) {
    case '<':
      result += "&lt;";
      break;
    case '>':
      result += "&gt;";
      break;
    case '&':
      result += "&amp;";
      break;
    case '"':
      result += "&quot;";
      break;
    default:
      result += c;
    }
  return result;
}

std::string code(StringRef text) { return text.empty() ? "" : "<code>" + escaped(text) + "</code>"; }

/// "tensor<8x4xf16>" -> element type "f16" and shape "8x4".
std::pair<StringRef, StringRef> splitType(StringRef type) {
  type.consume_front("tensor<");
  type.consume_back(">");
  size_t x = type.rfind('x');
  return x == StringRef::npos ? std::pair(type, StringRef("scalar")) : std::pair(type.substr(x + 1), type.substr(0, x));
}

std::string typeChip(StringRef type) {
  auto [element, shape] = splitType(type);
  StringRef style = element == "f16" ? "f16" : element == "bf16" ? "bf16" : element.starts_with("f8") ? "f8" : "wide";
  return llvm::formatv("<span class=\"t {0}\">{1}</span> <span class=\"dim\">{2}</span>", style, element, shape);
}

std::string bytes(int64_t count) {
  if (count >= 10 << 20)
    return llvm::formatv("{0:f1} MiB", static_cast<double>(count) / (1 << 20));
  if (count >= 10 << 10)
    return llvm::formatv("{0:f1} KiB", static_cast<double>(count) / (1 << 10));
  return llvm::formatv("{0} B", count);
}

std::string percent(double share) {
  if (share == 0.0)
    return "0";
  return share < 0.0001 ? "&lt; 0.01 %" : llvm::formatv("{0:f2} %", share * 100.0).str();
}

/// The float types that the histograms are held against.
struct NamedRange {
  StringRef name, style;
  FloatRange range;
};

class Page {
public:
  Page(const PrecisionReport &report, raw_ostream &out) : report(report), out(out) {
    MLIRContext context;
    Builder b(&context);
    ranges = {{"FP16", "f16", FloatRange::of(b.getF16Type())},
              {"BF16", "bf16", FloatRange::of(b.getBF16Type())},
              {"E5M2", "f8", FloatRange::of(Float8E5M2Type::get(&context))},
              {"E4M3", "f8", FloatRange::of(Float8E4M3FNType::get(&context))}};
    elementRanges = {{"f16", ranges[0].range},
                     {"bf16", ranges[1].range},
                     {"f8E5M2", ranges[2].range},
                     {"f8E4M3FN", ranges[3].range},
                     {"f32", FloatRange::of(b.getF32Type())}};
  }

  void print() {
    out << kHead << "<h1>Precision report</h1><p>Policy <b>" << escaped(report.policy.empty() ? "none" : report.policy)
        << "</b>";
    if (report.lossScale != 1.0)
      out << llvm::formatv(", gradients start at loss scale {0:f0}", report.lossScale);
    out << (report.measuredSteps ? llvm::formatv("; ranges measured in FP32 over {0} steps", report.measuredSteps).str()
                                 : std::string("; no ranges were measured (mpt-run --calibrate measures them)"))
        << ".</p>\n";
    if (!report.note.empty())
      out << "<p>" << escaped(report.note) << ".</p>\n";
    printTotals();
    printReasons();
    printRisks();
    if (report.measuredSteps)
      printLegend();
    printValues();
    printCasts();
    printStates();
    printErrors();
    printProducts();
    printRanges();
    out << kTail;
  }

private:
  void printTotals() {
    out << "<h2>Totals</h2><table><thead><tr><th>function<th class=n>narrow values<th class=n>bytes<th class=n>wide "
           "values<th class=n>bytes<th class=n>casts<th class=n>cast bytes<th class=n>rounding</tr></thead><tbody>\n";
    for (const ReportTotals &t : totalsOf(report))
      out << llvm::formatv("<tr><td>{0}<td class=n>{1}<td class=n>{2}<td class=n>{3}<td class=n>{4}<td class=n>{5}<td "
                           "class=n>{6}<td class=n>{7}</tr>\n",
                           code(t.function), t.narrow, bytes(t.narrowBytes), t.wide, bytes(t.wideBytes), t.casts,
                           bytes(t.castBytes), t.lossy);
    out << "</tbody></table>\n";
  }

  /// How many values each rule decided; their measured ranges stand with the values.
  void printReasons() {
    struct Row {
      int64_t narrow = 0, narrowBytes = 0, wide = 0, wideBytes = 0;
    };
    llvm::MapVector<StringRef, Row> rows;
    for (const ReportValue &value : report.values) {
      StringRef rule = value.rule;
      size_t measured = rule.find("measured");
      if (measured != StringRef::npos)
        rule = measured == 0 ? "measured range" : rule.take_front(measured).rtrim("; ").rsplit("; result").first;
      Row &row = rows[rule.empty() ? "no rule: types of the source" : rule];
      bool wide = isWide(value.type);
      ++(wide ? row.wide : row.narrow);
      (wide ? row.wideBytes : row.narrowBytes) += value.bytes;
    }
    auto list = rows.takeVector();
    llvm::stable_sort(list, [](auto &a, auto &b) {
      return a.second.narrowBytes + a.second.wideBytes > b.second.narrowBytes + b.second.wideBytes;
    });
    openTable("What decided", "reasons", list.size(), true,
              "<th>rule<th class=n>narrow values<th class=n>bytes<th class=n>wide values<th class=n>bytes");
    for (auto &[rule, row] : list)
      out << llvm::formatv("<tr><td>{0}<td class=n>{1}<td class=n>{2}<td class=n>{3}<td class=n>{4}</tr>\n",
                           escaped(rule), row.narrow, bytes(row.narrowBytes), row.wide, bytes(row.wideBytes));
    closeTable();
  }

  /// Values that lose more in their type than rounding, the worst first.
  void printRisks() {
    std::vector<std::pair<double, const ReportValue *>> risks;
    for (const ReportValue &value : report.values) {
      auto own = elementRanges.find(splitType(value.type).first);
      if (!value.profile || own == elementRanges.end())
        continue;
      RangeShares shares = value.profile->shares(own->second, shiftOf(*value.profile));
      if (shares.overflow > kOverflowAlarm || shares.underflow > kUnderflowAlarm || shares.subnormal > kSubnormalAlarm)
        risks.emplace_back(1e6 * shares.overflow + 1e3 * shares.underflow + shares.subnormal, &value);
    }
    if (!report.measuredSteps)
      return;
    if (risks.empty()) {
      out << "<h2>Values at risk</h2><p>None: no measured value overflows its type, and few become zero or "
             "subnormal.</p>\n";
      return;
    }
    llvm::stable_sort(risks, [](auto &a, auto &b) { return a.first > b.first; });
    openTable("Values at risk", "risks", risks.size(), true,
              "<th>function<th>node<th>operation<th>type<th>decided by<th>measured");
    for (auto [worst, value] : risks)
      out << llvm::formatv("<tr><td>{0}<td>{1}<td>{2}<td>{3}<td>{4}<td>{5}</tr>\n", code(value->function),
                           code(value->node), code(value->op), typeChip(value->type), escaped(value->rule),
                           measured(value->profile, value->type));
    closeTable();
  }

  /// One histogram's axis and lines with their names.
  void printLegend() {
    int width = (kLast - kFirst + 1) * kLegendBar, row = 14, height = 22 + row * static_cast<int>(ranges.size());
    out << llvm::formatv(
        "<h2>How to read the histograms</h2><p>Bars count the exponents of a value's elements over all measured "
        "steps. The lines under them are what each type holds, dotted where it is subnormal: bars to the right of "
        "a line overflow, bars to the left become zero. Gradients are drawn with the loss scale on them. What lies "
        "beyond an end of the axis is counted in its last bar.</p>\n<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 "
        "{0} "
        "{1}\" role=\"img\"><title>ranges of the types</title>",
        width + 220, height);
    auto at = [&](int exponent) { return (std::clamp(exponent, kFirst, kLast + 1) - kFirst) * kLegendBar; };
    for (int exponent = kFirst; exponent <= kLast; exponent += 8)
      out << llvm::formatv("<text x=\"{0}\" y=\"10\" font-size=\"10\" fill=\"var(--dim)\">2<tspan dy=\"-3\" "
                           "font-size=\"8\">{1}</tspan></text><path "
                           "d=\"M{0} 13V{2}\" stroke=\"var(--line)\"/>",
                           at(exponent), exponent, height);
    for (auto [i, type] : llvm::enumerate(ranges)) {
      int y = 22 + row * static_cast<int>(i);
      out << llvm::formatv("<path d=\"M{0} {1}H{2}\" stroke=\"var(--{3})\" stroke-width=\"4\" stroke-dasharray=\"3 "
                           "3\"/><path d=\"M{2} {1}H{4}\" "
                           "stroke=\"var(--{3})\" stroke-width=\"4\"/><text x=\"{5}\" y=\"{6}\" font-size=\"11\" "
                           "fill=\"currentColor\">{7}: {8:e1} to "
                           "{9:e1}</text>",
                           at(type.range.minSubnormal), y, at(type.range.minNormal), type.style,
                           at(std::ilogb(type.range.largest) + 1), width + 8, y + 4, type.name,
                           std::ldexp(1.0, type.range.minSubnormal), type.range.largest);
    }
    out << "</svg>\n";
  }

  static bool isWide(StringRef type) {
    StringRef element = splitType(type).first;
    return element == "f32" || element == "f64";
  }

  int shiftOf(const RangeProfile &profile) const {
    return profile.kind == "gradient" ? std::ilogb(report.lossScale) : 0;
  }

  void openTable(StringRef title, StringRef id, size_t rows, bool open, StringRef heads) {
    out << llvm::formatv(
        "<details{0}><summary>{1} ({2})</summary><input data-table=\"{3}\" placeholder=\"filter: node, "
        "op, type, rule ...\" aria-label=\"filter {1}\"><table id=\"{3}\"><thead><tr>{4}</tr></thead>"
        "<tbody>\n",
        open ? " open" : "", title, rows, id, heads);
  }
  void closeTable() { out << "</tbody></table></details>\n"; }

  void printValues() {
    llvm::MapVector<StringRef, std::vector<const ReportValue *>> functions;
    for (const ReportValue &value : report.values)
      functions[value.function].push_back(&value);
    bool first = true;
    for (auto &[function, values] : functions) {
      openTable(("Values of " + function).str(), ("values-" + function).str(), values.size(),
                function == "step" || (first && !functions.contains("step")),
                "<th>node<th>operation<th>class<th>type<th>decided by<th class=n>bytes<th>measured");
      first = false;
      for (const ReportValue *value : values)
        out << llvm::formatv("<tr><td>{0}<td>{1}<td>{2}<td>{3}<td>{4}<td class=n>{5}<td>{6}</tr>\n", code(value->node),
                             code(value->op), value->numericClass, typeChip(value->type), escaped(value->rule),
                             bytes(value->bytes), measured(value->profile, value->type));
      closeTable();
    }
  }

  void printCasts() {
    if (report.casts.empty())
      return;
    openTable("Casts", "casts", report.casts.size(), false,
              "<th>function<th>node<th>from<th>to<th class=n>bytes moved<th>rounds");
    for (const ReportCast &cast : report.casts)
      out << llvm::formatv("<tr><td>{0}<td>{1}<td>{2}<td>{3}<td class=n>{4}<td>{5}</tr>\n", code(cast.function),
                           code(cast.node), typeChip(cast.from), typeChip(cast.to), bytes(cast.bytes),
                           cast.lossy ? "yes" : "exact");
    closeTable();
  }

  void printStates() {
    openTable("Weights and other state", "states", report.states.size(), false,
              "<th>name<th>role<th>type<th>decided by<th class=n>bytes<th>measured");
    for (const ReportState &state : report.states)
      out << llvm::formatv("<tr><td>{0}<td>{1}<td>{2}<td>{3}<td class=n>{4}<td>{5}</tr>\n", code(state.name),
                           state.role, typeChip(state.type), escaped(state.rule), bytes(state.bytes),
                           measured(state.profile, state.type));
    closeTable();
  }

  void printRanges() {
    if (report.ranges.empty())
      return;
    openTable("Constants out of range", "ranges", report.ranges.size(), true, "<th>node<th>what happened");
    for (const ReportRange &range : report.ranges)
      out << llvm::formatv("<tr><td>{0}<td>{1}</tr>\n", code(range.where), escaped(range.note));
    closeTable();
  }

  void printErrors() {
    if (report.errors.empty())
      return;
    openTable("Errors by the model (mpt-run --certify measures them)", "errors", report.errors.size(), true,
              "<th>result or gradient<th class=n>relative error, at most");
    for (const ReportError &error : report.errors)
      out << llvm::formatv("<tr><td>{0}<td class=n>{1:e1}</tr>\n", code(error.output), error.bound);
    closeTable();
  }

  void printProducts() {
    if (report.products.empty())
      return;
    openTable("Products, measured on " + escaped(measuredOn(report)), "products", report.products.size(), true,
              "<th>product<th class=n>us in 16 bits<th class=n>us in 8 bits with conversions<th class=n>in 8 bits");
    for (const MeasuredProduct &p : report.products)
      out << llvm::formatv("<tr><td>{0}<td class=n>{1:f1}<td class=n>{2:f1}<td class=n>{3} of {4}</tr>\n",
                           code(p.product), p.wide, p.narrow, p.narrowOps, p.ops);
    closeTable();
  }

  /// Histogram and shares of one value. Gradients are shown with the loss scale on them, as they are stored.
  std::string measured(const std::optional<RangeProfile> &profile, StringRef type) {
    if (!profile)
      return "";
    int shift = shiftOf(*profile);
    std::string text;
    llvm::raw_string_ostream os(text);
    drawHistogram(*profile, shift, os);
    os << "<span class=\"dim\">" << profile->kind;
    if (shift)
      os << " &times; 2<sup>" << shift << "</sup>";
    os << llvm::formatv(", {0} zero",
                        percent(static_cast<double>(profile->zeros) / std::max<int64_t>(1, profile->count())));
    if (profile->largest > 0.0)
      os << llvm::formatv(", {0:e1} to {1:e1}", profile->smallest, profile->largest);
    os << "</span>";
    auto own = elementRanges.find(splitType(type).first);
    if (own != elementRanges.end()) {
      RangeShares shares = profile->shares(own->second, shift);
      os << "<br>" << share("overflow", shares.overflow, kOverflowAlarm) << ", "
         << share("to zero", shares.underflow, kUnderflowAlarm) << ", "
         << share("subnormal", shares.subnormal, kSubnormalAlarm);
    }
    if (profile->infinities || profile->nans)
      os << llvm::formatv("<br><span class=bad>{0} infinities, {1} NaN</span>", profile->infinities, profile->nans);
    return text;
  }

  static std::string share(StringRef name, double value, double alarm) {
    return llvm::formatv("<span class=\"{0}\">{1} {2}</span>", value > alarm ? "bad" : "dim", percent(value), name);
  }

  void drawHistogram(const RangeProfile &profile, int shift, raw_ostream &os) {
    std::vector<double> bars(kLast - kFirst + 1, 0.0);
    double highest = 0.0;
    for (auto [exponent, count] : profile.exponents) {
      double &bar = bars[std::clamp(exponent + shift, kFirst, kLast) - kFirst];
      bar += static_cast<double>(count);
      highest = std::max(highest, bar);
    }
    int width = static_cast<int>(bars.size()) * kBar, height = kHeight + 5 * static_cast<int>(ranges.size());
    os << llvm::formatv("<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\"><title>exponents "
                        "2^{2} to 2^{3}; lines are the ranges of FP16, BF16, E5M2, E4M3, dotted where subnormal"
                        "</title>",
                        width, height, kFirst, kLast);
    for (auto [i, bar] : llvm::enumerate(bars))
      if (bar > 0.0) {
        // At least one pixel: a rare value is the one that matters.
        int h = std::max(1, static_cast<int>(bar / highest * kHeight));
        os << llvm::formatv("<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" fill=\"currentColor\"/>", i * kBar,
                            kHeight - h, kBar - 1, h);
      }
    for (auto [i, type] : llvm::enumerate(ranges)) {
      int y = kHeight + 3 + 5 * static_cast<int>(i);
      auto at = [&](int exponent) { return (std::clamp(exponent, kFirst, kLast + 1) - kFirst) * kBar; };
      int low = at(type.range.minSubnormal), normal = at(type.range.minNormal),
          high = at(std::ilogb(type.range.largest) + 1);
      os << llvm::formatv("<path d=\"M{0} {1}H{2}\" stroke=\"var(--{3})\" stroke-width=\"2\" stroke-dasharray=\"2 2\"/>"
                          "<path d=\"M{2} {1}H{4}\" stroke=\"var(--{3})\" stroke-width=\"2\"/>",
                          low, y, normal, type.style, high);
    }
    os << "</svg>";
  }

  const PrecisionReport &report;
  raw_ostream &out;
  std::vector<NamedRange> ranges;
  std::map<StringRef, FloatRange> elementRanges;
};

} // namespace

void mpt::printHtml(const PrecisionReport &report, raw_ostream &out) { Page(report, out).print(); }
