// SPDX-License-Identifier: Apache-2.0
// Conversion of constants to narrow types: keeps sign, keeps infinities, and says when a value was out of range.
#ifndef MPT_PRECISION_CONSTANTS_H
#define MPT_PRECISION_CONSTANTS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include <string>

namespace mpt {

struct NarrowedConstant {
  mlir::ElementsAttr value; ///< null when the constant has no readable contents
  std::string note;         ///< empty, or how many values left the narrow type's range, and where they went
};

/// `value` (float elements) in `type`, each rounded to nearest even. Infinities and NaN stay. A finite value beyond the
/// range becomes the largest finite value of its sign: mask sentinels such as -3.4e38 or -1e9 must not become -inf, for
/// a fully masked row would then be NaN. A non-zero value that would become 0 takes the smallest subnormal of its sign,
/// so that an epsilon still protects a division.
NarrowedConstant narrowConstant(mlir::ElementsAttr value, mlir::FloatType type);

} // namespace mpt

#endif // MPT_PRECISION_CONSTANTS_H
