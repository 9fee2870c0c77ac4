// SPDX-License-Identifier: Apache-2.0
// Magnitudes that values took while a model ran: histograms of exponents, and the effect of a float type on them.
#ifndef MPT_SUPPORT_RANGEPROFILE_H
#define MPT_SUPPORT_RANGEPROFILE_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <limits>
#include <map>
#include <string>

namespace mpt {

/// Shares of the non-zero, finite values that a type would change by more than rounding.
struct RangeShares {
  double overflow = 0.0;  ///< beyond the largest finite value
  double underflow = 0.0; ///< rounded to zero
  double subnormal = 0.0; ///< kept with fewer significant bits
};

/// The limits of a float type as powers of two.
struct FloatRange {
  double largest;   ///< largest finite value
  int minNormal;    ///< exponent of the smallest normal value
  int minSubnormal; ///< exponent of the smallest value
  static FloatRange of(mlir::FloatType type);
};

/// The values of one tensor over all runs.
struct RangeProfile {
  std::string kind; ///< input, activation, weight, gradient, update or state
  std::string type; ///< element type it had when it was measured
  int64_t zeros = 0, infinities = 0, nans = 0;
  double smallest = std::numeric_limits<double>::infinity(); ///< magnitude; infinity when all are zero
  double largest = 0.0;                                      ///< magnitude of the largest finite value
  std::map<int, int64_t> exponents;                          ///< floor(log2 |x|) -> how many

  void add(double x);
  void merge(const RangeProfile &other);
  int64_t nonZero() const;
  int64_t count() const { return zeros + infinities + nans + nonZero(); }
  /// Shares for `range` when every value is multiplied by 2^shift first. Counts whole powers of two: a value in the
  /// binade of the largest finite value overflows only where the largest measured one does.
  RangeShares shares(const FloatRange &range, int shift = 0) const;

  /// L2 norm of the error of rounding to nearest in `range` over the values' own, when every value is multiplied by
  /// 2^shift first. Values are taken as spread evenly within their binade; values that overflow are left out.
  double relativeError(const FloatRange &range, int shift = 0) const;

  /// Root of the mean square of the finite values, spread evenly within their binade; zeros count.
  double rootMeanSquare() const;

  llvm::json::Value toJSON() const;
  static llvm::Expected<RangeProfile> fromJSON(const llvm::json::Value &value);
};

/// Profiles by value (mpt/Dialect/MPT/ValueKeys.h), and how they were made.
struct RangeProfiles {
  std::map<std::string, RangeProfile> values;
  int64_t steps = 0;
  double lossScale = 1.0; ///< by which the gradients were multiplied when they were measured

  llvm::json::Value toJSON() const;
  static llvm::Expected<RangeProfiles> fromJSON(const llvm::json::Value &value);
  /// Reads a file that `mpt-run --calibrate` wrote.
  static llvm::Expected<RangeProfiles> read(llvm::StringRef path);
};

} // namespace mpt

#endif // MPT_SUPPORT_RANGEPROFILE_H
