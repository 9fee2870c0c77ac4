// The precision report: every decision with its reason, and what the casts cost.
#ifndef MPT_PRECISION_REPORT_H
#define MPT_PRECISION_REPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt {

struct ReportValue {
  std::string function, node, op, numericClass, type, rule;
  unsigned result = 0;
  int64_t bytes = 0;
};
struct ReportCast {
  std::string function, node, from, to;
  int64_t bytes = 0; ///< read and written
  bool lossy = false;
};
struct ReportState {
  std::string name, role, type, rule;
  int64_t bytes = 0;
};
struct ReportRange {
  std::string where, note;
};
struct PrecisionReport {
  std::string policy;
  std::vector<ReportState> states;
  std::vector<ReportValue> values;
  std::vector<ReportCast> casts;
  std::vector<ReportRange> ranges;
};

/// Reads the decisions and types that the precision passes left in `module`. Changes nothing.
PrecisionReport makePrecisionReport(mlir::ModuleOp module);
void printText(const PrecisionReport &report, llvm::raw_ostream &out);
llvm::json::Value toJSON(const PrecisionReport &report);

} // namespace mpt

#endif // MPT_PRECISION_REPORT_H
