// SPDX-License-Identifier: Apache-2.0
// Ops of warps on matrices of 16 x 16, as intrinsics (wmma). MLIR's own patterns know FP16 alone.
#include "ToNvvm.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr unsigned words = 8; // of a thread's share of a matrix; BF16 operands have half as many

bool isBrainFloat(Operation *op) { return hasAttr<MPTDialect::Bf16AttrHelper>(op); }

LLVM::LLVMStructType structOf(Type element, unsigned count) {
  return LLVM::LLVMStructType::getLiteral(element.getContext(), SmallVector<Type>(count, element));
}
/// The registers of an operand, as intrinsics take them.
LLVM::LLVMStructType operandStruct(Operation *op) {
  MLIRContext *context = op->getContext();
  return isBrainFloat(op) ? structOf(IntegerType::get(context, 32), words / 2)
                          : structOf(VectorType::get({2}, Float16Type::get(context)), words);
}

SmallVector<Value> fieldsOf(OpBuilder &b, Location loc, Value matrix, unsigned count) {
  SmallVector<Value> fields;
  for (unsigned i = 0; i < count; ++i)
    fields.push_back(LLVM::ExtractValueOp::create(b, loc, matrix, ArrayRef<int64_t>{i}));
  return fields;
}
Value structWith(OpBuilder &b, Location loc, Type type, ValueRange fields) {
  Value result = LLVM::PoisonOp::create(b, loc, type);
  for (auto [i, field] : llvm::enumerate(fields))
    result = LLVM::InsertValueOp::create(b, loc, result, field, ArrayRef<int64_t>{static_cast<int64_t>(i)});
  return result;
}
Value number(OpBuilder &b, Location loc, int64_t n) {
  return LLVM::ConstantOp::create(b, loc, b.getI32Type(), b.getI32IntegerAttr(static_cast<int32_t>(n)));
}
const char *order(bool transposed) { return transposed ? "col" : "row"; }

struct LoadPattern : ConvertOpToLLVMPattern<gpu::SubgroupMmaLoadMatrixOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;
  LogicalResult matchAndRewrite(gpu::SubgroupMmaLoadMatrixOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    Location loc = op.getLoc();
    auto matrix = cast<gpu::MMAMatrixType>(op.getRes().getType());
    Value from = getStridedElementPtr(b, loc, cast<MemRefType>(op.getSrcMemref().getType()), adaptor.getSrcMemref(),
                                      adaptor.getIndices());
    std::string name = ("llvm.nvvm.wmma.m16n16k16.load." + Twine(matrix.getOperand() == "AOp" ? "a." : "b.") +
                        order(op.getTranspose().value_or(false)) + ".stride." + (isBrainFloat(op) ? "bf16" : "f16"))
                           .str();
    LLVM::LLVMStructType type = operandStruct(op);
    Value loaded = LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name),
                                                 ValueRange{from, number(b, loc, op.getLeadDimension().getSExtValue())})
                       .getResults();
    SmallVector<Value> fields = fieldsOf(b, loc, loaded, type.getBody().size());
    for (Value &field : fields)
      field = LLVM::BitcastOp::create(b, loc, b.getI32Type(), field);
    b.replaceOp(op, structWith(b, loc, getTypeConverter()->convertType(matrix), fields));
    return success();
  }
};

struct ProductPattern : ConvertOpToLLVMPattern<gpu::SubgroupMmaComputeOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;
  LogicalResult matchAndRewrite(gpu::SubgroupMmaComputeOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    Location loc = op.getLoc();
    LLVM::LLVMStructType type = operandStruct(op);
    SmallVector<Value> arguments;
    for (Value operand : {adaptor.getOpA(), adaptor.getOpB()})
      for (Value field : fieldsOf(b, loc, operand, type.getBody().size()))
        arguments.push_back(LLVM::BitcastOp::create(b, loc, type.getBody().front(), field));
    llvm::append_range(arguments, fieldsOf(b, loc, adaptor.getOpC(), words));
    std::string name = ("llvm.nvvm.wmma.m16n16k16.mma." + Twine(order(op.getATranspose().value_or(false))) + "." +
                        order(op.getBTranspose().value_or(false)) + (isBrainFloat(op) ? ".bf16" : ".f32.f32"))
                           .str();
    auto call =
        LLVM::CallIntrinsicOp::create(b, loc, structOf(b.getF32Type(), words), b.getStringAttr(name), arguments);
    b.replaceOp(op, call.getResults());
    return success();
  }
};

struct StorePattern : ConvertOpToLLVMPattern<gpu::SubgroupMmaStoreMatrixOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;
  LogicalResult matchAndRewrite(gpu::SubgroupMmaStoreMatrixOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    Location loc = op.getLoc();
    SmallVector<Value> arguments{getStridedElementPtr(b, loc, cast<MemRefType>(op.getDstMemref().getType()),
                                                      adaptor.getDstMemref(), adaptor.getIndices())};
    llvm::append_range(arguments, fieldsOf(b, loc, adaptor.getSrc(), words));
    arguments.push_back(number(b, loc, op.getLeadDimension().getSExtValue()));
    std::string name =
        std::string("llvm.nvvm.wmma.m16n16k16.store.d.") + order(op.getTranspose().value_or(false)) + ".stride.f32";
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(name), arguments);
    b.eraseOp(op);
    return success();
  }
};

struct ConstantPattern : ConvertOpToLLVMPattern<gpu::SubgroupMmaConstantMatrixOp> {
  using ConvertOpToLLVMPattern::ConvertOpToLLVMPattern;
  LogicalResult matchAndRewrite(gpu::SubgroupMmaConstantMatrixOp op, OpAdaptor adaptor,
                                ConversionPatternRewriter &b) const override {
    b.replaceOp(op, structWith(b, op.getLoc(), getTypeConverter()->convertType(op.getType()),
                               SmallVector<Value>(words, adaptor.getValue())));
    return success();
  }
};

} // namespace

void cuda::populateMatrixPatterns(LLVMTypeConverter &types, RewritePatternSet &patterns) {
  types.addConversion([](gpu::MMAMatrixType type) -> Type {
    MLIRContext *context = type.getContext();
    return structOf(type.getOperand() == "COp" ? Type(Float32Type::get(context)) : IntegerType::get(context, 32),
                    words);
  });
  patterns.add<LoadPattern, ProductPattern, StorePattern, ConstantPattern>(types);
}
