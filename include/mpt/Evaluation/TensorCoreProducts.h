// SPDX-License-Identifier: Apache-2.0
// Contractions on Tensor Cores: which accumulator their products meet in, and rows of sums that are computed in it.
#ifndef MPT_EVALUATION_TENSORCOREPRODUCTS_H
#define MPT_EVALUATION_TENSORCOREPRODUCTS_H

#include "mpt/Support/TensorCores.h"

#include "mlir/IR/Operation.h"
#include <vector>

namespace mpt {

/// The sums of a contraction, and the formats in which its operands are multiplied.
struct ContractionSums {
  TensorCoreSums sums;
  OperandFormat a, b;
};

/// The format of a float type of at most 16 bits.
std::optional<OperandFormat> operandFormatOf(mlir::Type type);

/// How `core` adds up the products of `op`; nothing where it does not: for other ops, FP32 and FP64 operands, and
/// accumulators wider than FP32. Operands of 8 bits that no library call takes are multiplied in FP16.
std::optional<ContractionSums> sumsOnTensorCore(mlir::Operation *op, const TensorCore &core);

/// Rows of sums of one length, side by side, to which rows of products are added one after the other.
class TensorCoreRows {
public:
  /// `results` are zero at the start, and the sums after finish().
  TensorCoreRows(const ContractionSums &how, llvm::MutableArrayRef<double> results, int64_t length);
  /// sums[i] += factor others[i] for one row of the results. `others` must live until finish().
  void add(double *sums, double factor, const double *others);
  void finish();

private:
  struct Row {
    std::vector<std::pair<double, const double *>> pending; ///< the products of an instruction
    int64_t taken = 0;                                      ///< products since the last promotion
  };
  void addPending(size_t row);
  void promote(size_t row);

  const ContractionSums how;
  llvm::MutableArrayRef<double> results;
  const int64_t length;
  std::vector<Row> rows;
  std::vector<double> parts; ///< running sums that are promoted to `results`; empty where none are
};

} // namespace mpt

#endif // MPT_EVALUATION_TENSORCOREPRODUCTS_H
