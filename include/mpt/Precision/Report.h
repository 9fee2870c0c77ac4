// SPDX-License-Identifier: Apache-2.0
// The precision report: every decision with its reason, and the cost of casts.
#ifndef MPT_PRECISION_REPORT_H
#define MPT_PRECISION_REPORT_H

#include "mpt/Precision/Settings.h"
#include "mpt/Support/RangeProfile.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt {

struct ReportValue {
  std::string function, node, op, numericClass, type, rule;
  unsigned result = 0;
  int64_t bytes = 0;
  std::string key;                     ///< see ValueKeys; empty for values that have none
  std::optional<RangeProfile> profile; ///< as measured, where ranges were given
};
struct ReportCast {
  std::string function, node, from, to;
  int64_t bytes = 0; ///< read and written
  bool lossy = false;
};
struct ReportState {
  std::string name, role, type, rule;
  int64_t bytes = 0;
  std::optional<RangeProfile> profile;
};
struct ReportRange {
  std::string where, note;
};
struct ReportError {
  std::string output;
  double bound = 0.0; ///< relative in the L2 norm, by the error model
};
struct PrecisionReport {
  std::string policy, note; ///< the note says how a policy was made of measurements
  std::vector<ReportState> states;
  std::vector<ReportRange> held; ///< tensors of the file that do not train, and why
  std::vector<ReportValue> values;
  std::vector<ReportCast> casts;
  std::vector<ReportRange> ranges;
  std::vector<ReportError> errors; ///< of results and gradients, where types were made of measurements
  std::string device, libraries;   ///< that products were measured on; empty where none were
  std::vector<MeasuredProduct> products;
  double lossScale = 1.0; ///< by which the policy multiplies gradients at the start
  int64_t measuredSteps = 0;
};

/// Sums over one function.
struct ReportTotals {
  std::string function;
  int64_t narrow = 0, wide = 0, narrowBytes = 0, wideBytes = 0, casts = 0, castBytes = 0, lossy = 0;
};
/// In the order in which functions appear.
std::vector<ReportTotals> totalsOf(const PrecisionReport &report);

/// Reads the decisions and types that the precision passes left in `module`, and joins measured ranges to them, if
/// given. Changes nothing.
PrecisionReport makePrecisionReport(mlir::ModuleOp module, const RangeProfiles *measured = nullptr);
/// The device that products were measured on, and its libraries.
std::string measuredOn(const PrecisionReport &report);
void printText(const PrecisionReport &report, llvm::raw_ostream &out);
llvm::json::Value toJSON(const PrecisionReport &report);
/// One page without external resources; measured values with their histogram of exponents beside the types' ranges.
void printHtml(const PrecisionReport &report, llvm::raw_ostream &out);

} // namespace mpt

#endif // MPT_PRECISION_REPORT_H
