// SPDX-License-Identifier: Apache-2.0
// --memory-report: the module's memory as text or JSON.
#include "mpt/Memory/Report.h"
#include "mpt/Support/Files.h"

#include "passes/memory/Passes.h"

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
    auto print = [&](llvm::raw_ostream &out) { mpt::memory::writeReport(report, json, out); };
    if (llvm::Error error = mpt::writeFile(file.empty() ? "-" : StringRef(file), print)) {
      getOperation().emitError() << llvm::toString(std::move(error));
      return signalPassFailure();
    }
    markAllAnalysesPreserved();
  }
};

} // namespace
