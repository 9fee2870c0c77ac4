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

LogicalResult RepeatOp::verify() {
  if (static_cast<int64_t>(getCount()) < 1)
    return emitOpError("C1: expected at least one pass, got ") << static_cast<int64_t>(getCount());
  Block &body = getBody().front();
  if (body.getNumArguments() != getBuffers().size() || getAdvances().size() != getBuffers().size())
    return emitOpError("C2: expected an argument of the body and an advance for each of ")
           << getBuffers().size() << " buffers, got " << body.getNumArguments() << " and " << getAdvances().size();
  for (auto [buffer, argument] : llvm::zip(getBuffers(), body.getArguments()))
    if (getElementTypeOrSelf(buffer) != getElementTypeOrSelf(argument))
      return emitOpError("C2: expected the element type of ") << buffer.getType() << ", got " << argument.getType();
  return success();
}

void RepeatOp::getEffects(Effects &effects) {
  SmallVector<std::array<bool, 2>> done(getBuffers().size()); // read, written
  Block &body = getBody().front();
  for (Operation &op : body) {
    SmallVector<MemoryEffects::EffectInstance> inside;
    if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
      interface.getEffects(inside);
    for (const MemoryEffects::EffectInstance &effect : inside) {
      Value memref = effect.getValue();
      while (memref && memref.getDefiningOp<ViewOp>())
        memref = memref.getDefiningOp<ViewOp>().getSource();
      auto argument = dyn_cast_or_null<BlockArgument>(memref);
      bool writes = isa<MemoryEffects::Write>(effect.getEffect());
      if (!argument || (!writes && !isa<MemoryEffects::Read>(effect.getEffect())) ||
          std::exchange(done[argument.getArgNumber()][writes], true))
        continue;
      OpOperand &buffer = getBuffersMutable()[argument.getArgNumber()];
      if (writes)
        effects.emplace_back(MemoryEffects::Write::get(), &buffer);
      else
        effects.emplace_back(MemoryEffects::Read::get(), &buffer);
    }
  }
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
