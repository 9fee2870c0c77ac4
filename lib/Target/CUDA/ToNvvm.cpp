// SPDX-License-Identifier: Apache-2.0
// GPU kernels to the LLVM and NVVM dialects, in one conversion with a chosen width of indices.
// Matcher: the ops of the gpu dialect that schedules emit, each with its NVVM counterpart.
#include "ToNvvm.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/NVGPUToNVVM/NVGPUToNVVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace mpt;

namespace {

Value number(ImplicitLocOpBuilder &b, gpu::ThreadIdOp op) {
  Type i32 = b.getI32Type();
  switch (op.getDimension()) {
  case gpu::Dimension::x:
    return NVVM::ThreadIdXOp::create(b, i32);
  case gpu::Dimension::y:
    return NVVM::ThreadIdYOp::create(b, i32);
  case gpu::Dimension::z:
    return NVVM::ThreadIdZOp::create(b, i32);
  }
  llvm_unreachable("unknown dimension");
}
Value number(ImplicitLocOpBuilder &b, gpu::BlockIdOp op) {
  Type i32 = b.getI32Type();
  switch (op.getDimension()) {
  case gpu::Dimension::x:
    return NVVM::BlockIdXOp::create(b, i32);
  case gpu::Dimension::y:
    return NVVM::BlockIdYOp::create(b, i32);
  case gpu::Dimension::z:
    return NVVM::BlockIdZOp::create(b, i32);
  }
  llvm_unreachable("unknown dimension");
}

/// Exchange of 32 bits with the lane at a distance; wider values go in two pieces.
Value exchanged(ImplicitLocOpBuilder &b, Value x, Value distance) {
  Type type = x.getType();
  auto constant = [&](Type type, int64_t n) -> Value {
    return arith::ConstantOp::create(b, b.getIntegerAttr(type, n));
  };
  if (type.isInteger(32) || type.isF32())
    return NVVM::ShflOp::create(b, type, constant(b.getI32Type(), -1), x, distance, constant(b.getI32Type(), 31),
                                NVVM::ShflKind::bfly, UnitAttr());
  Type i64 = b.getI64Type(), i32 = b.getI32Type();
  Value bits = type.isInteger(64) ? x : Value(arith::BitcastOp::create(b, i64, x));
  Value low = exchanged(b, arith::TruncIOp::create(b, i32, bits), distance);
  Value high = arith::TruncIOp::create(b, i32, arith::ShRUIOp::create(b, bits, constant(i64, 32)));
  high = exchanged(b, high, distance);
  bits = arith::OrIOp::create(b, arith::ExtUIOp::create(b, i64, low),
                              arith::ShLIOp::create(b, arith::ExtUIOp::create(b, i64, high), constant(i64, 32)));
  return type.isInteger(64) ? bits : Value(arith::BitcastOp::create(b, type, bits));
}

void lowerToNvvm(func::FuncOp kernel) {
  kernel.walk([](Operation *op) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    auto index = [&](Value value) -> Value { return arith::IndexCastUIOp::create(b, b.getIndexType(), value); };
    if (auto thread = dyn_cast<gpu::ThreadIdOp>(op)) {
      thread.replaceAllUsesWith(index(number(b, thread)));
    } else if (auto block = dyn_cast<gpu::BlockIdOp>(op)) {
      block.replaceAllUsesWith(index(number(b, block)));
    } else if (auto shuffle = dyn_cast<gpu::ShuffleOp>(op)) {
      shuffle.getShuffleResult().replaceAllUsesWith(exchanged(b, shuffle.getValue(), shuffle.getOffset()));
    } else if (isa<gpu::BarrierOp>(op)) {
      NVVM::Barrier0Op::create(b);
    } else {
      return;
    }
    op->erase();
  });
  auto block = getAttr<MPTDialect::BlockAttrHelper>(kernel);
  auto schedule = getAttr<MPTDialect::ScheduleAttrHelper>(kernel);
  OpBuilder b(kernel.getContext());
  SmallVector<NamedAttribute> kept;
  for (NamedAttribute attribute : kernel->getDiscardableAttrs())
    if (attribute.getNameDialect() != kernel.getContext()->getLoadedDialect<MPTDialect>())
      kept.push_back(attribute);
  kernel->setDiscardableAttrs(kept);
  kernel->setAttr("nvvm.kernel", b.getUnitAttr());
  if (block) {
    kernel->setAttr("nvvm.reqntid", b.getDenseI32ArrayAttr({int32_t(block[0]), int32_t(block[1]), int32_t(block[2])}));
    // Rows that fill the registers of half a multiprocessor: the assembler may not take more. Elsewhere it takes fewer
    // than such a bound would have it take.
    int64_t threads = block[0] * block[1] * block[2];
    if (schedule && schedule.getValue() == "rows" && threads == 256)
      kernel->setAttr("nvvm.minctasm", b.getI32IntegerAttr(2));
  }
  kernel.setPublic();
}

/// 32-bit indices serve where no buffer has 2^31 elements: division by constants costs half as much, and registers too.
bool isWide(func::FuncOp kernel) {
  auto grid = getAttr<MPTDialect::GridAttrHelper>(kernel), block = getAttr<MPTDialect::BlockAttrHelper>(kernel);
  int64_t threads = 1;
  if (grid && block)
    for (int i = 0; i < 3; ++i)
      threads *= grid[i] * block[i];
  bool wide = threads >= (int64_t(1) << 30);
  for (Type type : kernel.getArgumentTypes()) {
    auto memref = cast<MemRefType>(type);
    SmallVector<int64_t> strides;
    int64_t offset, span = 1;
    (void)memref.getStridesAndOffset(strides, offset);
    for (auto [extent, stride] : llvm::zip_equal(memref.getShape(), strides))
      span += (extent - 1) * stride;
    wide |= span >= (int64_t(1) << 31) - 4096;
  }
  return wide;
}

LogicalResult convert(ModuleOp part, unsigned bits) {
  MLIRContext *context = part.getContext();
  RewritePatternSet simpler(context);
  vector::populateVectorBroadcastLoweringPatterns(simpler);
  vector::populateVectorInsertExtractStridedSliceTransforms(simpler);
  if (failed(applyPatternsGreedily(part, std::move(simpler))))
    return failure();
  LowerToLLVMOptions options(context);
  options.useBarePtrCallConv = true;
  options.overrideIndexBitwidth(bits);
  LLVMTypeConverter types(context, options);
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns);
  populateVectorToLLVMConversionPatterns(types, patterns, /*reassociateFPReductions=*/false,
                                         /*force32BitVectorIndices=*/bits == 32);
  populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  populateFuncToLLVMConversionPatterns(types, patterns);
  cuda::populateMatrixPatterns(types, patterns);
  types.addConversion([&](nvgpu::DeviceAsyncTokenType) { return IntegerType::get(context, 32); });
  populateNVGPUToNVVMConversionPatterns(types, patterns);
  LLVMConversionTarget target(*context);
  target.addLegalDialect<NVVM::NVVMDialect>();
  target.addLegalOp<LLVM::CallIntrinsicOp>();
  // i1 and the bytes that hold it are one type from here on.
  target.addLegalOp<ModuleOp, UnrealizedConversionCastOp>();
  return applyPartialConversion(part, target, std::move(patterns));
}

} // namespace

FailureOr<SmallVector<ModuleOp>> cuda::lowerKernels(ModuleOp kernels, unsigned sm) {
  OpBuilder builder(kernels.getContext());
  builder.setInsertionPointToEnd(kernels.getBody());
  SmallVector<ModuleOp> parts;
  for (int i = 0; i < 2; ++i)
    parts.push_back(ModuleOp::create(builder, kernels.getLoc()));
  for (Operation &op : llvm::make_early_inc_range(*kernels.getBody())) {
    if (auto kernel = dyn_cast<func::FuncOp>(op)) {
      ModuleOp part = parts[isWide(kernel)];
      lowerToNvvm(kernel);
      kernel->moveBefore(part.getBody(), part.getBody()->end());
    } else if (!isa<ModuleOp>(op)) {
      // Tables and shared memory; the part that does not use them drops them.
      for (ModuleOp part : parts)
        part.push_back(op.clone());
      op.erase();
    }
  }
  PassManager before(kernels.getContext(), ModuleOp::getOperationName());
  before.enableVerifier(false);
  OpPassManager &each = before.nest<ModuleOp>();
  each.addPass(createLoopInvariantCodeMotionPass());
  each.addPass(createCanonicalizerPass());
  each.addPass(createCSEPass());
  each.addPass(createSCFToControlFlowPass());
  each.addPass(memref::createExpandStridedMetadataPass());
  each.addPass(createLowerAffinePass());
  PassManager after(kernels.getContext(), ModuleOp::getOperationName());
  after.enableVerifier(false);
  after.nest<ModuleOp>().addPass(createReconcileUnrealizedCastsPass());
  after.nest<ModuleOp>().addPass(createCanonicalizerPass());
  after.nest<ModuleOp>().addPass(createCSEPass());
  // First: folding would make one rounding of two, such as of an integer to FP32 and then to BF16.
  takeMaxima(kernels);
  packSelects(kernels, sm);
  packMagnitudes(kernels, sm);
  lowerFloatOps(kernels, sm);
  narrowIndexCompares(parts[0]);
  if (failed(before.run(kernels)))
    return failure();
  if (failed(convert(parts[0], 32)) || failed(convert(parts[1], 64)) || failed(after.run(kernels)))
    return failure();
  return parts;
}
