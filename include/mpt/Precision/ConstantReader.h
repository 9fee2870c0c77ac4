// SPDX-License-Identifier: Apache-2.0
// How large the elements of constants are, whatever the constants' size.
#ifndef MPT_PRECISION_CONSTANTREADER_H
#define MPT_PRECISION_CONSTANTREADER_H

#include "mpt/Support/MappedFiles.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/DenseMap.h"
#include <algorithm>
#include <cmath>
#include <optional>

namespace mpt {

/// Of the finite elements of a constant: others are sentinels and have no magnitude. Zeros where none is finite.
struct ElementRange {
  double low = 0, high = 0;
  double smallest = 0; ///< least magnitude but zero; 0 where there is none
  double rootMeanSquare = 0;
  bool integer = true; ///< every element is a whole number
  int64_t elements = 0;

  double magnitude() const { return std::max(std::abs(low), std::abs(high)); }
};

/// Reads each constant once, piece by piece. Pages of files are dropped behind it, so that weights which are mapped
/// need no memory.
class ConstantReader {
public:
  /// Of an elements attribute, a number or a list of numbers; nothing for attributes that cannot be read.
  std::optional<ElementRange> read(mlir::Attribute constant);

private:
  MappedFiles files;
  llvm::DenseMap<mlir::Attribute, std::optional<ElementRange>> known;
};

/// Parameters and constants of a training module whose initial values, rounded to `type`, are infinite: with the
/// largest magnitude of each.
llvm::DenseMap<mlir::StringAttr, double> statesBeyond(mlir::ModuleOp module, mlir::FloatType type,
                                                      ConstantReader &reader);

} // namespace mpt

#endif // MPT_PRECISION_CONSTANTREADER_H
