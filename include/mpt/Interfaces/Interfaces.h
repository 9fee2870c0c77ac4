// SPDX-License-Identifier: Apache-2.0
// The interfaces that carry op behaviour: one include for dialects and the layers that attach bodies.
#ifndef MPT_INTERFACES_INTERFACES_H
#define MPT_INTERFACES_INTERFACES_H

#include "mpt/Interfaces/GradientMap.h"
#include "mpt/Interfaces/NumericClass.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"

namespace mpt {
class ElementEmitter;
class IndexExpr;
class InterpreterFrame;
} // namespace mpt

#include "mpt/Interfaces/Decomposable.h.inc"
#include "mpt/Interfaces/Differentiable.h.inc"
#include "mpt/Interfaces/EvaluationForm.h.inc"
#include "mpt/Interfaces/Interpretable.h.inc"
#include "mpt/Interfaces/LoopLowering.h.inc"
#include "mpt/Interfaces/PrecisionSemantics.h.inc"

#endif // MPT_INTERFACES_INTERFACES_H
