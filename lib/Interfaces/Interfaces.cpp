// SPDX-License-Identifier: Apache-2.0
// Generated interface methods, and the names of the numeric classes.
#include "mpt/Interfaces/Interfaces.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mpt;

#include "mpt/Interfaces/Decomposable.cpp.inc"
#include "mpt/Interfaces/Differentiable.cpp.inc"
#include "mpt/Interfaces/EvaluationForm.cpp.inc"
#include "mpt/Interfaces/Interpretable.cpp.inc"
#include "mpt/Interfaces/LoopLowering.cpp.inc"
#include "mpt/Interfaces/PrecisionSemantics.cpp.inc"

llvm::StringRef mpt::stringifyNumericClass(NumericClass value) {
  switch (value) {
  case NumericClass::Contraction:
    return "contraction";
  case NumericClass::Reduction:
    return "reduction";
  case NumericClass::RangeExpanding:
    return "range-expanding";
  case NumericClass::Neutral:
    return "neutral";
  case NumericClass::Movement:
    return "movement";
  case NumericClass::Pinned:
    return "pinned";
  }
  llvm_unreachable("unknown numeric class");
}

std::optional<NumericClass> mpt::symbolizeNumericClass(llvm::StringRef name) {
  return llvm::StringSwitch<std::optional<NumericClass>>(name)
      .Case("contraction", NumericClass::Contraction)
      .Case("reduction", NumericClass::Reduction)
      .Case("range-expanding", NumericClass::RangeExpanding)
      .Case("neutral", NumericClass::Neutral)
      .Case("movement", NumericClass::Movement)
      .Case("pinned", NumericClass::Pinned)
      .Default(std::nullopt);
}

void GradientMap::add(mlir::OpBuilder &builder, mlir::Value value, mlir::Value gradient) {
  if (!gradient || !wants(value))
    return;
  mlir::Value &slot = gradients[value];
  slot = slot ? sum(builder, gradient.getLoc(), slot, gradient) : gradient;
}
