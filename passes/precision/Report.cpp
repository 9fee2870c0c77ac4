// SPDX-License-Identifier: Apache-2.0
// precision-report: prints the decisions of the precision passes.
#include "passes/precision/Passes.h"

#include "mpt/Precision/Report.h"
#include "mpt/Support/Files.h"

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
    auto print = [&](raw_ostream &os) {
      if (format == "json")
        os << llvm::formatv("{0:2}", toJSON(report)) << "\n";
      else if (format == "html")
        printHtml(report, os);
      else
        printText(report, os);
    };
    if (llvm::Error error = writeFile(output, print)) {
      emitError(loc) << llvm::toString(std::move(error));
      return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};
} // namespace
