// SPDX-License-Identifier: Apache-2.0
// Constants, splats and conversions of scalars and vectors inside generated loops.
#ifndef MPT_LOWERING_EMISSION_VALUEBUILDER_H
#define MPT_LOWERING_EMISSION_VALUEBUILDER_H

#include "mpt/Lowering/Emission/KernelTarget.h"

#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <optional>

namespace mpt {

class ValueBuilder {
public:
  ValueBuilder(mlir::ImplicitLocOpBuilder &builder, const KernelTarget &target) : b(builder), target(target) {}

  mlir::Value constant(mlir::Type type, double value);
  mlir::Value constantLike(mlir::Value like, double value);
  mlir::Value constantLike(mlir::Value like, llvm::APInt value);
  mlir::Value indexConstant(int64_t value);
  /// `type`, as a vector where `like` is one.
  mlir::Type typeLike(mlir::Type type, mlir::Value like);
  /// Makes vectors of the scalars among `values` when any is a vector.
  void unify(llvm::MutableArrayRef<mlir::Value> values);
  mlir::Value splat(mlir::Value value, unsigned width);
  /// `value` (in compute type) rounded to `type`, still in compute type.
  mlir::Value round(mlir::Value value, mlir::Type type);
  /// From and to the type in which `value` lies in memory; narrowing assumes a value that is rounded already.
  mlir::Value widen(mlir::Value value);
  /// Bits of an element of unsigned `type`, as the non-negative number of the compute type.
  mlir::Value widenUnsigned(mlir::Value value, mlir::Type type);
  mlir::Value narrow(mlir::Value value, mlir::Type type);
  static unsigned width(mlir::Value value);
  /// The number that all lanes of `value` have, where it is a constant float.
  static std::optional<double> numberIn(mlir::Value value);

  mlir::ImplicitLocOpBuilder &b;
  const KernelTarget &target;
};

} // namespace mpt

#endif // MPT_LOWERING_EMISSION_VALUEBUILDER_H
