// SPDX-License-Identifier: Apache-2.0
// GEMMs of tiles for the convolution kernels: 16 x 16 x 16 multiplications of warps (wmma), or 8 x 8 sums of a thread
// by FMA.
#include "TileGemm.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;

Value mpt::cuda::sharedMemory(ImplicitLocOpBuilder &b, ArrayRef<int64_t> shape, Type element, int64_t &bytes,
                              int64_t alignment, StringRef stem) {
  auto type = MemRefType::get(shape, element, MemRefLayoutAttrInterface(), b.getI64IntegerAttr(3));
  bytes += type.getNumElements() * element.getIntOrFloatBitWidth() / 8;
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  std::string name;
  for (unsigned i = 0; name.empty() || module.lookupSymbol(name); ++i)
    name = stem.str() + std::to_string(i);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    memref::GlobalOp::create(b, name, b.getStringAttr("private"), type, b.getUnitAttr(), /*constant=*/false,
                             b.getI64IntegerAttr(alignment));
  }
  return memref::GetGlobalOp::create(b, type, name);
}

namespace {

/// Four warps, two above two, each with tiles of 16 x 16.
class WarpGemm : public TileGemm {
public:
  WarpGemm(ImplicitLocOpBuilder &b, Type operand, conv::TileShape shape, Value thread)
      : TileGemm(b, shape, thread), brainFloat(operand.isBF16()), height(shape.rows / 2 / 16),
        width(shape.columns / 2 / 16) {
    Value warp = math.div(thread, math.number(32));
    firstRow = math.mul(math.div(warp, math.number(2)), math.number(shape.rows / 2));
    firstColumn = math.mul(math.rem(warp, math.number(2)), math.number(shape.columns / 2));
    warpAbove = math.mul(math.div(warp, math.number(2)), math.number(16));
  }
  // Rows begin at multiples of 16 bytes, as the loads of wmma demand.
  std::array<int64_t, 2> extents(int64_t extent, bool depthFirst) const override {
    return depthFirst ? std::array<int64_t, 2>{extent, shape.depth + 8}
                      : std::array<int64_t, 2>{shape.depth, extent + 8};
  }
  bool keepsDepthFirst() const override { return true; }
  SmallVector<Value> start() override {
    Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0));
    return SmallVector<Value>(height * width,
                              gpu::SubgroupMmaConstantMatrixOp::create(b, matrix(b.getF32Type(), "COp"), zero));
  }
  SmallVector<Value> add(const OperandTile &left, const OperandTile &right, Value buffer, ValueRange sums) override {
    SmallVector<Value> result(sums);
    for (int64_t k = 0; k < shape.depth; k += 16) {
      SmallVector<Value> rows, columns;
      for (int64_t i = 0; i < height; ++i)
        rows.push_back(load(left, "AOp", buffer, math.add(firstRow, math.number(i * 16)), k, !left.depthFirst));
      for (int64_t j = 0; j < width; ++j)
        columns.push_back(load(right, "BOp", buffer, math.add(firstColumn, math.number(j * 16)), k, right.depthFirst));
      for (int64_t i = 0; i < height; ++i)
        for (int64_t j = 0; j < width; ++j) {
          auto sum =
              gpu::SubgroupMmaComputeOp::create(b, result[i * width + j].getType(), rows[i], columns[j],
                                                result[i * width + j], flag(!left.depthFirst), flag(right.depthFirst));
          mark(sum);
          result[i * width + j] = sum;
        }
    }
    return result;
  }
  int64_t passes() const override { return height; }
  int64_t stageRows() const override { return 32; }
  Value rowOf(int64_t pass, Value staged) override {
    Value warp = math.div(staged, math.number(16)), row = math.rem(staged, math.number(16));
    return math.add(math.add(math.mul(warp, math.number(shape.rows / 2)), math.number(pass * 16)), row);
  }
  void leave(int64_t pass, ValueRange sums, Value stage) override {
    int64_t pitch = cast<MemRefType>(stage.getType()).getShape()[1];
    for (int64_t j = 0; j < width; ++j)
      gpu::SubgroupMmaStoreMatrixOp::create(b, sums[pass * width + j], stage,
                                            ValueRange{warpAbove, math.add(firstColumn, math.number(j * 16))},
                                            b.getIndexAttr(pitch), UnitAttr());
  }

private:
  static gpu::MMAMatrixType matrix(Type element, StringRef role) {
    return gpu::MMAMatrixType::get({16, 16}, element, role);
  }
  UnitAttr flag(bool set) { return set ? b.getUnitAttr() : UnitAttr(); }
  void mark(Operation *op) {
    if (brainFloat)
      setAttr<MPTDialect::Bf16AttrHelper>(op);
  }
  Value load(const OperandTile &tile, StringRef role, Value buffer, Value at, int64_t k, bool transposed) {
    Value depth = math.number(k);
    int64_t pitch = cast<MemRefType>(tile.memory.getType()).getShape()[2];
    auto load = gpu::SubgroupMmaLoadMatrixOp::create(b, matrix(b.getF16Type(), role), tile.memory,
                                                     tile.depthFirst ? ValueRange{buffer, at, depth}
                                                                     : ValueRange{buffer, depth, at},
                                                     b.getIndexAttr(pitch), flag(transposed));
    mark(load);
    return load;
  }

  bool brainFloat;
  int64_t height, width; ///< of a warp's part, in tiles
  Value firstRow, firstColumn, warpAbove;
};

/// 8 x 8 sums a thread: four neighbours in either direction, and four further on.
class ThreadGemm : public TileGemm {
public:
  ThreadGemm(ImplicitLocOpBuilder &b, conv::TileShape shape, Value thread)
      : TileGemm(b, shape, thread), across(shape.columns / 8), down(conv::threads / across) {
    line = math.div(thread, math.number(across));
    row = math.mul(line, math.number(4));
    column = math.mul(math.rem(thread, math.number(across)), math.number(4));
  }
  std::array<int64_t, 2> extents(int64_t extent, bool) const override { return {shape.depth, extent + 4}; }
  bool keepsDepthFirst() const override { return false; }
  SmallVector<Value> start() override {
    return SmallVector<Value>(16, arith::ConstantOp::create(b, b.getZeroAttr(four())));
  }
  SmallVector<Value> add(const OperandTile &left, const OperandTile &right, Value buffer, ValueRange sums) override {
    constexpr int64_t unroll = 4;
    auto loop = scf::ForOp::create(b, math.number(0), math.number(shape.depth), math.number(unroll), sums);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> result(loop.getRegionIterArgs());
    for (int64_t k = 0; k < unroll; ++k) {
      Value depth = math.add(loop.getInductionVar(), math.number(k)), rows[2], columns[2];
      for (int64_t half = 0; half < 2; ++half) {
        rows[half] = read(left, buffer, depth, math.add(row, math.number(half * down * 4)));
        columns[half] = read(right, buffer, depth, math.add(column, math.number(half * across * 4)));
      }
      for (int64_t i = 0; i < 8; ++i) {
        Value factor = vector::ExtractOp::create(b, rows[i / 4], i % 4);
        factor = vector::BroadcastOp::create(b, four(), factor);
        for (int64_t half = 0; half < 2; ++half)
          result[i * 2 + half] = vector::FMAOp::create(b, factor, columns[half], result[i * 2 + half]);
      }
    }
    scf::YieldOp::create(b, result);
    return SmallVector<Value>(loop.getResults());
  }
  int64_t passes() const override { return 4; }
  int64_t stageRows() const override { return down * 2; }
  Value rowOf(int64_t pass, Value staged) override {
    Value from = math.mul(math.div(staged, math.number(2)), math.number(4));
    return math.add(math.add(from, math.rem(staged, math.number(2))), math.number(pass / 2 * down * 4 + pass % 2 * 2));
  }
  void leave(int64_t pass, ValueRange sums, Value stage) override {
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t half = 0; half < 2; ++half)
        vector::StoreOp::create(b, sums[(pass * 2 + i) * 2 + half], stage,
                                ValueRange{math.add(math.mul(line, math.number(2)), math.number(i)),
                                           math.add(column, math.number(half * across * 4))},
                                false, llvm::MaybeAlign(16));
  }

private:
  VectorType four() { return VectorType::get({4}, b.getF32Type()); }
  Value read(const OperandTile &tile, Value buffer, Value depth, Value at) {
    return vector::LoadOp::create(b, four(), tile.memory, ValueRange{buffer, depth, at}, false, llvm::MaybeAlign(16));
  }
  int64_t across, down; ///< threads
  Value line, row, column;
};

} // namespace

std::unique_ptr<TileGemm> TileGemm::create(ImplicitLocOpBuilder &b, Type operand, conv::TileShape shape, Value thread) {
  if (operand.isF32())
    return std::make_unique<ThreadGemm>(b, shape, thread);
  return std::make_unique<WarpGemm>(b, operand, shape, thread);
}
