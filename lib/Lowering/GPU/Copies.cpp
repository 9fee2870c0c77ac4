// SPDX-License-Identifier: Apache-2.0
// Kernels that are no fusion of the program: copies between layouts, and zeros.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"

using namespace mlir;
using namespace mpt;

/// A fusion without operands that `fill` gives a body.
static OwningOpRef<Operation *> detached(OpBuilder &builder, Location loc, ValueRange operands, RankedTensorType type,
                                         function_ref<Value(OpBuilder &, Block &)> fill) {
  OpBuilder inner(builder.getContext());
  OwningOpRef<Operation *> fusion(FusionOp::create(inner, loc, TypeRange{type}, operands));
  Block &block = fusion->getRegion(0).emplaceBlock();
  for (Value operand : operands)
    block.addArgument(operand.getType(), loc);
  inner.setInsertionPointToEnd(&block);
  YieldOp::create(inner, loc, fill(inner, block));
  return fusion;
}

FailureOr<GpuKernelInfo> mpt::emitGpuCopy(OpBuilder &builder, Location loc, MemRefType from, MemRefType to,
                                          StringRef name, const GpuTarget &target, ArrayRef<int64_t> alignments) {
  auto type = RankedTensorType::get(from.getShape(), from.getElementType());
  OpBuilder inner(builder.getContext());
  // The operand only gives the fusion a type.
  OwningOpRef<Operation *> operand(IotaOp::create(inner, loc, type, 0));
  OwningOpRef<Operation *> fusion = detached(builder, loc, operand->getResults(), type,
                                             [](OpBuilder &, Block &block) { return block.getArgument(0); });
  FailureOr<GpuKernelInfo> info = emitGpuKernel(builder, cast<FusionOp>(*fusion), from, to, name, target, alignments);
  fusion = nullptr;
  return info;
}

FailureOr<GpuKernelInfo> mpt::emitGpuZero(OpBuilder &builder, Location loc, MemRefType to, StringRef name,
                                          const GpuTarget &target) {
  auto type = RankedTensorType::get(to.getShape(), to.getElementType());
  OwningOpRef<Operation *> fusion = detached(builder, loc, {}, type, [&](OpBuilder &inner, Block &) -> Value {
    Attribute zero = isa<FloatType>(to.getElementType()) ? Attribute(inner.getFloatAttr(to.getElementType(), 0))
                                                         : Attribute(inner.getIntegerAttr(to.getElementType(), 0));
    return ConstantOp::create(inner, loc, type, cast<ElementsAttr>(DenseElementsAttr::get(type, zero)));
  });
  return emitGpuKernel(builder, cast<FusionOp>(*fusion), {}, to, name, target);
}
