// SPDX-License-Identifier: Apache-2.0
// Contractions by the properties that their time depends on, and their measured times.
#ifndef MPT_PRECISION_PRODUCTS_H
#define MPT_PRECISION_PRODUCTS_H

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Precision/Solve.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace mpt {

/// A float operand of a product.
struct ProductOperand {
  unsigned number = 0;           ///< among the op's operands
  mlir::RankedTensorType stored; ///< its type where the product is computed in 16 bits
  mlir::Type narrow;             ///< the 8-bit type that the policy converts it to; null where it has none
  bool isGradient = false;
};

/// A contraction that may have 8-bit operands: ops with one key take the same time.
struct Product {
  std::string key;         ///< "mpt.matmul (8x16xf8E4M3FN, 16x4xf8E4M3FN) {transpose_b = true} -> 8x4xbf16"
  std::string shapes;      ///< "8x16 by 16x4"
  double operations = 0.0; ///< multiplications and additions
  llvm::SmallVector<ProductOperand, 2> operands;
  mlir::RankedTensorType result;

  /// `types` are the types decided for `op`; `parts` are the parts of its function.
  Product(mlir::Operation *op, const OpTypes &types, const PrecisionSettings &settings, const TrainingParts &parts);
};

/// The name of `op` in every function of its model: they begin alike, so that the n-th op of a node is the same in all.
mlir::StringAttr nameInModel(mlir::Operation *op, const ValueKeys &keys);

/// The conversion of an operand, with the largest magnitude that its scale follows: "8x16xbf16 -> f8E4M3FN".
std::string conversionKey(const ProductOperand &operand);

/// The settings that times depend on beside shapes and types, as in "bf16, f8E4M3FN, f8E5M2, delayed scales". Tables of
/// another recipe say nothing of this one.
std::string recipeOf(const PrecisionSettings &settings);

/// Times of a model's products on one device, from the file that `python -m mpt.measure` wrote.
struct ProductTable {
  /// In microseconds: in the policy's 16-bit type, and in 8 bits with the conversions of the operands.
  struct Times {
    double wide = 0.0, narrow = 0.0;
  };
  std::string path, recipe, target, device, libraries;
  llvm::StringMap<Times> products;
  llvm::StringMap<double> conversions;

  /// The error names the file, the row and the expected entry.
  static llvm::Expected<ProductTable> read(llvm::StringRef path);
};

} // namespace mpt

#endif // MPT_PRECISION_PRODUCTS_H
