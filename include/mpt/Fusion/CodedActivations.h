// SPDX-License-Identifier: Apache-2.0
// Activations that wait for the backward pass as 8-bit codes with a scale a row.
#ifndef MPT_FUSION_CODEDACTIVATIONS_H
#define MPT_FUSION_CODEDACTIVATIONS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace mpt {

/// The values of a function that may wait as codes, one byte an element.
class CodedActivations {
public:
  /// `wants` tells of a node's name whether the values of the node may.
  CodedActivations(mlir::func::FuncOp function, llvm::function_ref<bool(llvm::StringRef)> wants);
  bool contains(mlir::Value value) const { return values.contains(value); }
  bool empty() const { return values.empty(); }

private:
  llvm::DenseSet<mlir::Value> values;
};

struct CodingResult {
  int64_t values = 0; ///< that wait as codes
  int64_t saves = 0;  ///< bytes, less the bytes of the scales
};

/// Lets the backward pass read those values of `coded` that it reads from codes (see fusion-code-activations).
CodingResult codeActivations(mlir::func::FuncOp function, const CodedActivations &coded);

} // namespace mpt

#endif // MPT_FUSION_CODEDACTIVATIONS_H
