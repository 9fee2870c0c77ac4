// precision-report: prints what the precision passes decided.
#include "passes/precision/Passes.h"

#include "mpt/Precision/Report.h"

#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/ToolOutputFile.h"

namespace mpt {
#define GEN_PASS_DEF_REPORT
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
class Report : public mpt::impl::ReportBase<Report> {
public:
  using ReportBase::ReportBase;

  void runOnOperation() override {
    Location loc = getOperation().getLoc();
    if (format != "text" && format != "json" && format != "html") {
      emitError(loc) << "expected report format text, json or html, got " << format;
      return signalPassFailure();
    }
    std::string error;
    auto file = openOutputFile(output, &error);
    if (!file) {
      emitError(loc) << "cannot write the precision report: " << error;
      return signalPassFailure();
    }
    std::optional<RangeProfiles> measured;
    if (!ranges.empty()) {
      llvm::Expected<RangeProfiles> read = RangeProfiles::read(ranges);
      if (!read) {
        emitError(loc) << llvm::toString(read.takeError());
        return signalPassFailure();
      }
      measured = std::move(*read);
    }
    PrecisionReport report = makePrecisionReport(getOperation(), measured ? &*measured : nullptr);
    if (format == "json")
      file->os() << llvm::formatv("{0:2}", toJSON(report)) << "\n";
    else if (format == "html")
      printHtml(report, file->os());
    else
      printText(report, file->os());
    file->keep();
    markAllAnalysesPreserved();
  }
};
} // namespace
