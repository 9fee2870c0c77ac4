// SPDX-License-Identifier: Apache-2.0
// Registration of the rt dialect, and the memory effects that its ops cannot state in ODS.
#include "mpt/Dialect/RT/RTDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt::rt;

#include "mpt/Dialect/RT/RTDialect.cpp.inc"
#include "mpt/Dialect/RT/RTEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/RT/RTAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/RT/RTOps.cpp.inc"

void RTDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "mpt/Dialect/RT/RTAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/RT/RTOps.cpp.inc"
      >();
}

using Effects = SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>;

void LaunchOp::getEffects(Effects &effects) {
  for (OpOperand &buffer : getBuffersMutable())
    if (buffer.getOperandNumber() < getNumInputs())
      effects.emplace_back(MemoryEffects::Read::get(), &buffer);
    else
      effects.emplace_back(MemoryEffects::Write::get(), &buffer);
}

OpOperand &ConvOp::getMade() {
  switch (getKind()) {
  case ConvKind::forward:
    return getYMutable();
  case ConvKind::backward_data:
    return getXMutable();
  case ConvKind::backward_weights:
    return getWMutable();
  }
  llvm_unreachable("unknown kind of convolution");
}

void ConvOp::getEffects(Effects &effects) {
  auto isWritten = [&](OpOperand &operand) {
    return &operand == &getMade() || operand.get() == getWorkspace() || operand.get() == getSums();
  };
  for (OpOperand &operand : getOperation()->getOpOperands())
    if (isWritten(operand))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
}
