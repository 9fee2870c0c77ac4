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
    if (format != "text" && format != "json") {
      emitError(loc) << "expected report format text or json, got " << format;
      return signalPassFailure();
    }
    std::string error;
    auto file = openOutputFile(output, &error);
    if (!file) {
      emitError(loc) << "cannot write the precision report: " << error;
      return signalPassFailure();
    }
    PrecisionReport report = makePrecisionReport(getOperation());
    if (format == "json")
      file->os() << llvm::formatv("{0:2}", toJSON(report)) << "\n";
    else
      printText(report, file->os());
    file->keep();
    markAllAnalysesPreserved();
  }
};
} // namespace
