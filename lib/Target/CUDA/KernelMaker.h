// SPDX-License-Identifier: Apache-2.0
// Kernels that the runtime launches by itself: loops whose extents are words in the memory of the device.
#ifndef MPT_LIB_TARGET_CUDA_KERNELMAKER_H
#define MPT_LIB_TARGET_CUDA_KERNELMAKER_H

#include "Images.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Memory/Bufferize.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mpt::cuda {

constexpr int64_t kBlocks = 1056, kThreads = 256, kMany = int64_t(1) << 40;

/// One kernel @name(memory..., words): each thread takes every so many-th number below the word `total`.
class KernelMaker {
public:
  KernelMaker(mlir::OpBuilder &outer, mlir::Location loc, const std::string &name, llvm::ArrayRef<mlir::Type> elements,
              int64_t words, int64_t total, int64_t blocks = kBlocks)
      : b(loc, outer) {
    llvm::SmallVector<mlir::Type> types;
    for (mlir::Type element : elements)
      types.push_back(mlir::MemRefType::get({kMany}, element));
    types.push_back(mlir::MemRefType::get({words}, b.getI64Type()));
    function = mlir::func::FuncOp::create(b, name, b.getFunctionType(types, {}));
    function.setPrivate();
    setAttr<MPTDialect::KernelAttrHelper>(function);
    setAttr<MPTDialect::GridAttrHelper>(function, b.getDenseI64ArrayAttr({blocks, 1, 1}));
    setAttr<MPTDialect::BlockAttrHelper>(function, b.getDenseI64ArrayAttr({kThreads, 1, 1}));
    setAttr<MPTDialect::SharedBytesAttrHelper>(function, b.getI64IntegerAttr(0));
    setAttr<MPTDialect::ScheduleAttrHelper>(function, b.getStringAttr("library"));
    b.setInsertionPointToStart(function.addEntryBlock());
    mlir::Value thread = mlir::gpu::ThreadIdOp::create(b, mlir::gpu::Dimension::x),
                block = mlir::gpu::BlockIdOp::create(b, mlir::gpu::Dimension::x);
    mlir::Value first = add(mul(block, number(kThreads)), thread);
    for (int64_t i = 0; i < words; ++i)
      fields.push_back(mlir::arith::IndexCastOp::create(
          b, b.getIndexType(), mlir::memref::LoadOp::create(b, this->words(), mlir::ValueRange{number(i)})));
    loop = mlir::scf::ForOp::create(b, first, fields[total], number(blocks * kThreads));
    mlir::func::ReturnOp::create(b);
    b.setInsertionPointToStart(loop.getBody());
  }
  mlir::Value index() { return loop.getInductionVar(); }
  mlir::Value from() { return function.getArgument(0); }
  mlir::Value to() { return function.getArgument(1); }
  mlir::Value words() { return function.getArguments().back(); }

  mlir::Value number(int64_t value) { return mlir::arith::ConstantIndexOp::create(b, value); }
  mlir::Value add(mlir::Value x, mlir::Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  mlir::Value sub(mlir::Value x, mlir::Value y) { return mlir::arith::SubIOp::create(b, x, y); }
  mlir::Value mul(mlir::Value x, mlir::Value y) { return mlir::arith::MulIOp::create(b, x, y); }
  mlir::Value both(mlir::Value x, mlir::Value y) { return mlir::arith::AndIOp::create(b, x, y); }
  mlir::Value less(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::slt, x, y);
  }
  mlir::Value equal(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq, x, y);
  }
  mlir::Value inside(mlir::Value x, mlir::Value extent) {
    return both(mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::sge, x, number(0)), less(x, extent));
  }
  mlir::Value choose(mlir::Value condition, mlir::Value x, mlir::Value y) {
    return mlir::arith::SelectOp::create(b, condition, x, y);
  }
  /// Takes the fastest coordinate off a flat index.
  mlir::Value take(mlir::Value &flat, mlir::Value extent) {
    mlir::Value rest = mlir::arith::DivUIOp::create(b, flat, extent), at = sub(flat, mul(rest, extent));
    flat = rest;
    return at;
  }
  mlir::Value zero(mlir::Type type) { return mlir::arith::ConstantOp::create(b, b.getZeroAttr(type)); }

  mlir::ImplicitLocOpBuilder b;
  mlir::func::FuncOp function;
  llvm::SmallVector<mlir::Value> fields;
  mlir::scf::ForOp loop;
};

/// Adds the kernels of attention where no engine of cuDNN takes it, if `module` has any.
void addAttentionKernels(mlir::ModuleOp module);

/// The architecture whose warpgroups multiply (`wgmma`). Its images carry the kernels of a module of that name inside
/// `module` instead of the kernels of the same names.
constexpr llvm::StringLiteral warpgroupArch = "sm_90a";
void addWarpgroupKernels(mlir::ModuleOp module);

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_KERNELMAKER_H
