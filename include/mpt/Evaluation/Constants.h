// SPDX-License-Identifier: Apache-2.0
// Values that follow from constants, computed by the ops' own rules.
#ifndef MPT_EVALUATION_CONSTANTS_H
#define MPT_EVALUATION_CONSTANTS_H

#include "mpt/Evaluation/Tensor.h"
#include "mpt/Interfaces/EvaluationPattern.h"

#include "mlir/IR/Operation.h"

#include <optional>

namespace mpt {

/// How the elements of the op's result follow from its operands'.
AccessPattern accessPatternOf(mlir::Operation *op);

/// The attribute of an mpt.constant, null for other values.
mlir::ElementsAttr constantOf(mlir::Value value);

/// The number in every element of a constant; nothing where they differ, or there are none.
std::optional<double> uniformNumber(mlir::ElementsAttr value);

/// The elements of `value` if nothing but constants leads to it, through at most 64 ops none of whose results has more
/// than `mostElements` elements. Nothing otherwise, or where a rule refuses its operands; no diagnostic is emitted.
std::optional<Tensor> evaluateConstant(mlir::Value value, int64_t mostElements);

/// The only result of `op`, computed from `operands`, one an operand; null where the operands do not determine it or a
/// rule refuses them. No diagnostic is emitted. Uniform operands of an op that keeps them uniform cost one element's
/// work, whatever their size.
mlir::ElementsAttr evaluateOp(mlir::Operation *op, llvm::ArrayRef<mlir::ElementsAttr> operands);
/// The same, null unless the work is for one element alone.
mlir::ElementsAttr evaluateUniformOp(mlir::Operation *op, llvm::ArrayRef<mlir::ElementsAttr> operands);

} // namespace mpt

#endif // MPT_EVALUATION_CONSTANTS_H
