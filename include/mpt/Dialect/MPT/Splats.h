// SPDX-License-Identifier: Apache-2.0
// Constants with one number in every element.
#ifndef MPT_DIALECT_MPT_SPLATS_H
#define MPT_DIALECT_MPT_SPLATS_H

#include "mlir/IR/Value.h"

#include <optional>

namespace mpt {

/// The number in every element of a floating-point constant; through broadcasts.
std::optional<double> splatNumber(mlir::Value value);

} // namespace mpt

#endif // MPT_DIALECT_MPT_SPLATS_H
