// SPDX-License-Identifier: Apache-2.0
// Contractions on Tensor Cores: which accumulator their products meet in, and rows of sums that are computed in it.
#ifndef MPT_EVALUATION_TENSORCOREPRODUCTS_H
#define MPT_EVALUATION_TENSORCOREPRODUCTS_H

#include "mpt/Evaluation/GroupedRows.h"
#include "mpt/Support/TensorCores.h"

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

/// A group is the products of an instruction.
class TensorCoreRows final : public GroupedRows {
public:
  TensorCoreRows(const ContractionSums &how, llvm::MutableArrayRef<double> results, int64_t length);
  void finish() override;

private:
  void addGroup(size_t row, llvm::ArrayRef<Product> products) override;
  void promote(size_t row);

  const ContractionSums how;
  std::vector<double> parts;  ///< running sums that are promoted to `results`; empty where none are
  std::vector<int64_t> taken; ///< products since the last promotion, of each row
};

} // namespace mpt

#endif // MPT_EVALUATION_TENSORCOREPRODUCTS_H
