// SPDX-License-Identifier: Apache-2.0
// Multiplication of matrices by warps, as loops of their first lanes.
// Matcher: gpu.subgroup_mma_*, the ops of the gpu dialect on matrices, each with its loops.
#include "MatrixEmulation.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

struct Emitter {
  ImplicitLocOpBuilder &b;
  Value thread, warp;

  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, n); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  /// `fill` for every row, in the first lane of each warp.
  void rows(int64_t extent, llvm::function_ref<void(Value)> fill) {
    Value lane = arith::RemUIOp::create(b, thread, number(warpLanes));
    Value first = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, lane, number(0));
    auto branch = scf::IfOp::create(b, first, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    warp = arith::DivUIOp::create(b, thread, number(warpLanes));
    auto loop = scf::ForOp::create(b, number(0), number(extent), number(1));
    b.setInsertionPointToStart(loop.getBody());
    fill(loop.getInductionVar());
  }
  Value row(Value memory, Value i) {
    return vector::LoadOp::create(b, rowType(memory), memory, ValueRange{warp, i, number(0)});
  }
  void setRow(Value memory, Value i, Value value) {
    vector::StoreOp::create(b, value, memory, ValueRange{warp, i, number(0)});
  }
  static VectorType rowType(Value memory) {
    auto type = cast<MemRefType>(memory.getType());
    return VectorType::get({type.getShape().back()}, type.getElementType());
  }
  /// `fill(j)` for every column.
  void columns(int64_t extent, llvm::function_ref<void(Value)> fill) {
    auto loop = scf::ForOp::create(b, number(0), number(extent), number(1));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    fill(loop.getInductionVar());
  }
};

/// Indices of element (i, j) of a matrix that begins at `indices`.
SmallVector<Value> elementAt(Emitter &e, ValueRange indices, const IRMapping &mapping, bool transposed, Value i,
                             Value j) {
  SmallVector<Value> at;
  for (Value index : indices)
    at.push_back(mapping.lookupOrDefault(index));
  size_t rank = at.size();
  at[rank - 2] = e.add(at[rank - 2], transposed ? j : i);
  at[rank - 1] = e.add(at[rank - 1], transposed ? i : j);
  return at;
}

} // namespace

bool mpt::isMatrixOp(Operation &op) {
  return isa<gpu::SubgroupMmaLoadMatrixOp, gpu::SubgroupMmaStoreMatrixOp, gpu::SubgroupMmaComputeOp,
             gpu::SubgroupMmaConstantMatrixOp>(op);
}

void mpt::emulateMatrixOp(ImplicitLocOpBuilder &b, Operation &op, Value thread, const IRMapping &mapping,
                          llvm::function_ref<Value(Value)> memoryOf) {
  Emitter e{b, thread, Value()};
  if (auto load = dyn_cast<gpu::SubgroupMmaLoadMatrixOp>(op)) {
    Value to = memoryOf(load.getRes()), from = mapping.lookupOrDefault(load.getSrcMemref());
    ArrayRef<int64_t> shape = cast<gpu::MMAMatrixType>(load.getRes().getType()).getShape();
    e.rows(shape[0], [&](Value i) {
      e.columns(shape[1], [&](Value j) {
        Value value = memref::LoadOp::create(
            b, from, elementAt(e, load.getIndices(), mapping, load.getTranspose().value_or(false), i, j));
        if (hasAttr<MPTDialect::Bf16AttrHelper>(&op))
          value = arith::BitcastOp::create(b, b.getBF16Type(), value);
        if (!value.getType().isF32())
          value = arith::ExtFOp::create(b, b.getF32Type(), value);
        memref::StoreOp::create(b, value, to, ValueRange{e.warp, i, j});
      });
    });
  } else if (auto store = dyn_cast<gpu::SubgroupMmaStoreMatrixOp>(op)) {
    Value from = memoryOf(store.getSrc()), to = mapping.lookupOrDefault(store.getDstMemref());
    ArrayRef<int64_t> shape = cast<gpu::MMAMatrixType>(store.getSrc().getType()).getShape();
    e.rows(shape[0], [&](Value i) {
      e.columns(shape[1], [&](Value j) {
        Value value = memref::LoadOp::create(b, from, ValueRange{e.warp, i, j});
        memref::StoreOp::create(b, value, to,
                                elementAt(e, store.getIndices(), mapping, store.getTranspose().value_or(false), i, j));
      });
    });
  } else if (auto constant = dyn_cast<gpu::SubgroupMmaConstantMatrixOp>(op)) {
    Value to = memoryOf(constant.getRes());
    e.rows(constant.getType().getShape()[0], [&](Value i) {
      e.setRow(to, i,
               vector::BroadcastOp::create(b, Emitter::rowType(to), mapping.lookupOrDefault(constant.getValue())));
    });
  } else {
    auto product = cast<gpu::SubgroupMmaComputeOp>(op);
    Value to = memoryOf(product.getRes()), left = memoryOf(product.getOpA()), right = memoryOf(product.getOpB());
    int64_t depth = cast<gpu::MMAMatrixType>(product.getOpA().getType()).getShape()[1];
    e.rows(cast<gpu::MMAMatrixType>(product.getRes().getType()).getShape()[0], [&](Value i) {
      Value sum = e.row(memoryOf(product.getOpC()), i);
      auto loop = scf::ForOp::create(b, e.number(0), e.number(depth), e.number(1), ValueRange{sum});
      {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToStart(loop.getBody());
        Value k = loop.getInductionVar();
        Value factor = memref::LoadOp::create(b, left, ValueRange{e.warp, i, k});
        factor = vector::BroadcastOp::create(b, Emitter::rowType(to), factor);
        scf::YieldOp::create(b,
                             ValueRange{vector::FMAOp::create(b, factor, e.row(right, k), loop.getRegionIterArg(0))});
      }
      e.setRow(to, i, loop.getResult(0));
    });
  }
}

void mpt::emulateMatrixCopy(ImplicitLocOpBuilder &b, Value from, Value to, Value thread) {
  Emitter e{b, thread, Value()};
  e.rows(cast<MemRefType>(from.getType()).getShape()[1], [&](Value i) { e.setRow(to, i, e.row(from, i)); });
}
