// --memory-report: text or JSON of what the module needs.
#include "mpt/Memory/Report.h"

#include "passes/memory/Passes.h"

#include "llvm/Support/FileSystem.h"

namespace mpt {
#define GEN_PASS_DEF_MEMORYREPORT
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;

namespace {

struct Report : mpt::impl::MemoryReportBase<Report> {
  using MemoryReportBase::MemoryReportBase;
  void runOnOperation() override {
    llvm::json::Object report = mpt::memory::report(getOperation());
    std::error_code code;
    llvm::raw_fd_ostream out(file.empty() ? "-" : StringRef(file), code);
    if (code) {
      getOperation().emitError() << "cannot write '" << file << "': " << code.message();
      return signalPassFailure();
    }
    if (json)
      out << llvm::formatv("{0:2}", llvm::json::Value(std::move(report))) << "\n";
    else
      mpt::memory::printReport(report, out);
    markAllAnalysesPreserved();
  }
};

} // namespace
