// SPDX-License-Identifier: Apache-2.0
// The base of attention kernels: their arguments and words, masks, scores, dropout, and the statistics of rows.
#include "AttentionKernel.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;
using namespace mpt::attention;

// Indices of 32 bits reach so far; larger tensors take indices of 64.
constexpr int64_t kNear = (int64_t(1) << 31) - 8192, kFar = int64_t(1) << 40;

AttentionKernel::AttentionKernel(OpBuilder &outer, Location loc, const Tile &tile, bool isLarge)
    : b(loc, outer), math{b}, tile(tile), most(isLarge ? kFar : kNear), rows(rowsOf(tile.kind)), f32(b.getF32Type()),
      element(tile.type == MPT_FLOAT16 ? Type(b.getF16Type()) : Type(b.getBF16Type())) {}

Value AttentionKernel::word32(int64_t at) {
  Value wide = memref::LoadOp::create(b, words, ValueRange{math.number(at)});
  return arith::TruncIOp::create(b, b.getI32Type(), wide);
}

Value AttentionKernel::loadReal(Value memory, Value at) {
  Value x = memref::LoadOp::create(b, memory, ValueRange{at});
  return x.getType() == f32 ? x : arith::ExtFOp::create(b, f32, x).getResult();
}

//===----------------------------------------------------------------------===//
// Elements of the score tile
//===----------------------------------------------------------------------===//

Value AttentionKernel::isSeen(const Place &place, int64_t i) {
  Value behind = math.add(place.query, math.number(1));
  Value limit = math.choose(math.below(behind, keys), behind, keys);
  return math.both(math.below(place.query, queries), math.below(keyOf(place, i), math.choose(causal, limit, keys)));
}

/// scale q k^T + bias, of an element of q k^T.
Value AttentionKernel::score(Value gemm, const Place &place, int64_t i, Value valid) {
  Value x = arith::MulFOp::create(b, gemm, scale);
  if (!bias)
    return x;
  Value at = math.add(base(Bias, head),
                      math.add(math.mul(place.query, word(Bias + 2)), math.mul(keyOf(place, i), word(Bias + 3))));
  return arith::AddFOp::create(b, x, loadReal(bias, math.choose(valid, at, math.number(0))));
}

/// Words of Philox 4x32-10 (Salmon et al., SC 2011) for probabilities in the row `row` of all rows: of four keys from
/// `first` on, or of `first` alone (see mpt.dropout).
SmallVector<Value> AttentionKernel::random(Value row, Value first, bool all) {
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  auto wide = [&](Value x) -> Value { return arith::IndexCastUIOp::create(b, i64, x); };
  auto number64 = [&](int64_t n) -> Value { return arith::ConstantOp::create(b, b.getI64IntegerAttr(n)); };
  auto low = [&](Value x) -> Value { return arith::TruncIOp::create(b, i32, x); };
  auto high = [&](Value x) -> Value { return low(arith::ShRUIOp::create(b, x, number64(32))); };
  auto either = [&](Value x, Value y, Value z) -> Value {
    return arith::XOrIOp::create(b, arith::XOrIOp::create(b, x, y), z);
  };
  Value at = arith::AddIOp::create(b, arith::MulIOp::create(b, wide(row), wide(keys)), wide(first));
  Value block = arith::ShRUIOp::create(b, at, number64(2));
  Value c[4] = {low(block), high(block), randomCounter[0], randomCounter[1]}, k0 = randomKey[0], k1 = randomKey[1];
  for (int round = 0; round < 10; ++round) {
    if (round) {
      k0 = arith::AddIOp::create(b, k0, number32(0x9E3779B9));
      k1 = arith::AddIOp::create(b, k1, number32(0xBB67AE85));
    }
    auto first = arith::MulUIExtendedOp::create(b, c[0], number32(0xD2511F53));
    auto second = arith::MulUIExtendedOp::create(b, c[2], number32(0xCD9E8D57));
    Value next[4] = {either(second.getHigh(), c[1], k0), second.getLow(), either(first.getHigh(), c[3], k1),
                     first.getLow()};
    std::copy(next, next + 4, c);
  }
  if (all)
    return {c[0], c[1], c[2], c[3]};
  Value place = low(arith::AndIOp::create(b, at, number64(3))), found = c[3];
  for (int i = 2; i >= 0; --i) {
    Value is = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, place, number32(i));
    found = arith::SelectOp::create(b, is, c[i], found);
  }
  return {found};
}

/// Which of a piece's probabilities dropout keeps; null without dropout.
SmallVector<Value> AttentionKernel::kept(const Place &place) {
  SmallVector<Value> result;
  if (!tile.drops)
    return SmallVector<Value>(kPiece);
  Value row = math.add(math.mul(math.add(math.mul(batch, word(Heads)), head), queries), place.query);
  while (static_cast<int64_t>(result.size()) < kPiece)
    for (Value found : random(row, keyOf(place, static_cast<int64_t>(result.size())), tile.fours))
      result.push_back(arith::CmpIOp::create(b, arith::CmpIPredicate::uge, found, threshold));
  return result;
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

void AttentionKernel::makeFunction() {
  auto memory = [&](Type type) { return MemRefType::get({most}, type); };
  // Operands are moved as FP16, in which warps take them, whichever they are.
  Type half = b.getF16Type(), i64 = b.getI64Type();
  SmallVector<Type> types(3, memory(half));
  if (tile.biasType)
    types.push_back(memory(tile.biasType == MPT_FLOAT32   ? f32
                           : tile.biasType == MPT_FLOAT16 ? half
                                                          : Type(b.getBF16Type())));
  if (tile.drops)
    types.push_back(MemRefType::get({2}, i64));
  const auto read = types.size();
  if (tile.kind == Kind::Forward)
    types.append({memory(element), memory(f32)});
  else
    types.append({memory(half), memory(f32), memory(f32), memory(element)});
  if (tile.kind == Kind::Keys)
    types.push_back(memory(element));
  types.push_back(MemRefType::get({Words}, i64));
  function = func::FuncOp::create(b, tile.name(), b.getFunctionType(types, {}));
  function.setPrivate();
  setAttr<MPTDialect::KernelAttrHelper>(function);
  setAttr<MPTDialect::GridAttrHelper>(function, b.getDenseI64ArrayAttr({gridBlocks, 1, 1}));
  setAttr<MPTDialect::BlockAttrHelper>(function, b.getDenseI64ArrayAttr({threads, 1, 1}));
  setAttr<MPTDialect::ScheduleAttrHelper>(function, b.getStringAttr("attention-tiles"));
  b.setInsertionPointToStart(function.addEntryBlock());
  ValueRange arguments = function.getArguments();
  q = arguments[0], k = arguments[1], v = arguments[2], words = arguments.back();
  if (tile.biasType)
    bias = arguments[3];
  if (tile.drops)
    key = arguments[read - 1];
  arguments = arguments.drop_front(read);
  if (tile.kind == Kind::Forward) {
    o = arguments[0], statistics = arguments[1];
  } else {
    dO = arguments[0], statistics = arguments[1], delta = arguments[2];
    (tile.kind == Kind::Queries ? dq : dk) = arguments[3];
    dv = arguments[4];
  }
  const auto constant = tile.kind == Kind::Forward ? read : read + 3;
  for (unsigned i = 0; i < function.getNumArguments(); ++i)
    if (i < constant || i + 1 == function.getNumArguments())
      for (StringRef attribute : {"llvm.readonly", "llvm.noalias"})
        function.setArgAttr(i, attribute, b.getUnitAttr());
}

void AttentionKernel::readWords() {
  for (auto [at, value] : llvm::enumerate(indices)) {
    Value wide = memref::LoadOp::create(b, words, ValueRange{math.number(static_cast<int64_t>(at))});
    value = arith::IndexCastOp::create(b, b.getIndexType(), wide);
  }
  queries = word(Queries), keys = word(Keys), scale = realWord(Scale);
  causal = math.below(math.number(0), word(Causal));
  if (!tile.drops)
    return;
  keptScale = realWord(KeptScale), threshold = word32(Threshold);
  auto halves = [&](int64_t at, Value &low, Value &high) {
    Value wide = memref::LoadOp::create(b, key, ValueRange{math.number(at)});
    low = arith::TruncIOp::create(b, b.getI32Type(), wide);
    Value half = arith::ConstantOp::create(b, b.getI64IntegerAttr(32));
    high = arith::TruncIOp::create(b, b.getI32Type(), arith::ShRUIOp::create(b, wide, half));
  };
  Value aboveStep;
  halves(0, randomKey[0], randomKey[1]);
  halves(1, randomCounter[1], aboveStep);
  randomCounter[0] = arith::AddIOp::create(b, word32(Stream), aboveStep);
}

/// Batch, heads and first row of tile `number`.
void AttentionKernel::findTile(Value number) {
  Value rowTiles = word(RowTiles), rest = math.div(number, rowTiles);
  firstRow = math.mul(math.rem(number, rowTiles), math.number(rows));
  Value heads = word(tile.kind == Kind::Keys ? KeyHeads : Heads);
  batch = math.div(rest, heads);
  head = math.rem(rest, heads);
  Value group = math.div(word(Heads), word(KeyHeads));
  keyHead = tile.kind == Kind::Keys ? head : math.div(head, group);
}

/// Chunks of `size` keys that a tile of queries sees.
Value AttentionKernel::chunksOfKeys(int64_t size) {
  Value end = math.add(firstRow, math.number(rows));
  end = math.choose(math.both(causal, math.below(end, keys)), end, keys);
  return math.div(math.add(end, math.number(size - 1)), math.number(size));
}

SmallVector<Value> AttentionKernel::overChunks(Value first, Value end, ValueRange initial,
                                               llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body,
                                               int64_t step) {
  auto loop = scf::ForOp::create(b, first, end, math.number(step), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!next.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

//===----------------------------------------------------------------------===//
// Statistics
//===----------------------------------------------------------------------===//

/// The largest score of a row and the sum of exponentials below it, of parts that `lanes` neighbours have: every one of
/// them gets the statistics, from butterflies. 1 to 32, a power of two.
Value AttentionKernel::joinedStatistics(Value top, Value sum, int64_t lanes) {
  for (int64_t distance = 1; distance < lanes; distance *= 2) {
    auto exchanged = [&](Value x) {
      return gpu::ShuffleOp::create(b, x, number32(distance), number32(32), gpu::ShuffleMode::XOR).getShuffleResult();
    };
    Value otherTop = exchanged(top), otherSum = exchanged(sum);
    Value larger = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, top, otherTop);
    Value most = math.choose(larger, top, otherTop), level = finite(most);
    auto lowered = [&](Value from, Value x) -> Value {
      return arith::MulFOp::create(b, x, math::ExpOp::create(b, arith::SubFOp::create(b, from, level)));
    };
    sum = arith::AddFOp::create(b, lowered(top, sum), lowered(otherTop, otherSum));
    top = most;
  }
  // The logarithm takes NaN for a number.
  Value isNumber = arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, sum, sum);
  Value found = math.choose(isNumber, arith::AddFOp::create(b, finite(top), logarithm(b, sum)), sum);
  Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, sum, real(0));
  return math.choose(none, real(-INFINITY), found);
}

/// Statistics of `row` of the head to memory, by threads that `writes` says.
void AttentionKernel::leaveStatistics(Value result, Value row, Value writes) {
  auto branch = scf::IfOp::create(b, math.both(math.below(row, queries), writes), /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value at = math.add(math.mul(math.add(math.mul(batch, word(Heads)), head), queries), row);
  memref::StoreOp::create(b, result, statistics, ValueRange{at});
}
