// SPDX-License-Identifier: Apache-2.0
// Attention in tiles on Tensor Cores (Dao, arXiv 2307.08691): scores live in shared memory alone, their statistics make
// the backward pass independent of the order of keys, and dropout draws its numbers again.
#include "AttentionTiles.h"

#include "TileGemm.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;
using namespace mpt::attention;

namespace {

// Indices of 32 bits reach so far; tensors that are larger take those of 64.
constexpr int64_t kNear = (int64_t(1) << 31) - 8192, kFar = int64_t(1) << 40;
constexpr int64_t kVector = 8, kPiece = 4; ///< elements of one access to operands and to scores

class TileMaker {
public:
  TileMaker(OpBuilder &outer, Location loc, const Tile &tile, bool isLarge)
      : b(loc, outer), math{b}, tile(tile), most(isLarge ? kFar : kNear), rows(rowsOf(tile.kind)),
        depth(paddedDepth(tile.depth)), valueDepth(paddedDepth(tile.valueDepth)), f32(b.getF32Type()),
        element(tile.type == MPT_FLOAT16 ? Type(b.getF16Type()) : Type(b.getBF16Type())) {}
  func::FuncOp make();

private:
  /// 16 x 16 matrices of a warp, rows first.
  using Fragments = SmallVector<Value>;
  /// Elements of the score tile that are this thread's, or a piece of them: neighbours in a row, or by keys in a
  /// column.
  struct Place {
    Value row, column, query, key; ///< of the first; `query` and `key` count from the head's beginning
  };

  // ---- memory
  Value word(int64_t at) const { return indices[at]; }
  void readWords();
  Value number32(int64_t n) { return arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(n))); }
  Value word32(int64_t at) {
    Value wide = memref::LoadOp::create(b, words, ValueRange{math.number(at)});
    return arith::TruncIOp::create(b, b.getI32Type(), wide);
  }
  Value real(double x) { return arith::ConstantOp::create(b, b.getF32FloatAttr(static_cast<float>(x))); }
  Value realWord(int64_t at) { return arith::BitcastOp::create(b, f32, word32(at)); }
  Value base(int64_t strides, Value head) {
    return math.add(math.mul(batch, word(strides)), math.mul(head, word(strides + 1)));
  }
  Value shared(int64_t height, int64_t width, Type type) { return sharedMemory(b, {height, width}, type, sharedBytes); }
  Value loadReal(Value memory, Value at) {
    Value x = memref::LoadOp::create(b, memory, ValueRange{at});
    return x.getType() == f32 ? x : arith::ExtFOp::create(b, f32, x).getResult();
  }
  void moveTile(Value from, Value start, Value stride, Value first, Value limit, int64_t height, Value depthWord,
                Value to);

  // ---- what warps multiply
  Value fragment(Value memory, StringRef role, Value row, Value column, bool transposed);
  Fragments zeros(int64_t width);
  Fragments scores(Value left, Value right, int64_t width);
  void keepScores(ValueRange sums, Value stage);
  Fragments accumulate(ValueRange sums, Value left, Value right, int64_t width);
  Value multiply(Value left, Value right, Value sum, bool transposed);
  void leave(ValueRange sums, int64_t width, Value to, Value start, Value stride, Value limit, Value depthWord,
             Value factor);

  // ---- elements
  int64_t perThread() const { return rows * chunk / threads; }
  Place placeIn(Value chunkFirst);
  SmallVector<Value> eachPiece(const Place &place, ValueRange initial,
                               llvm::function_ref<SmallVector<Value>(const Place &, ValueRange)> body);
  SmallVector<Value> read(Value memory, const Place &place);
  void write(ArrayRef<Value> values, Value memory, const Place &place);
  Value score(Value gemm, const Place &place, int64_t i, Value valid);
  Value isSeen(const Place &place, int64_t i);
  Value keyOf(const Place &place, int64_t i) { return math.add(place.key, math.number(i)); }
  SmallVector<Value> random(Value row, Value key, bool all);
  SmallVector<Value> kept(const Place &place);
  Value probability(Value score, Value statistics, Value valid) {
    Value p = math::ExpOp::create(b, arith::SubFOp::create(b, score, statistics));
    return math.choose(valid, p, real(0));
  }
  Value finite(Value x) {
    Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x, real(-INFINITY));
    return math.choose(none, real(0), x);
  }
  Value dropped(Value p, Value keeps) {
    return tile.drops ? math.choose(keeps, arith::MulFOp::create(b, p, keptScale), real(0)) : p;
  }

  // ---- the kernel
  void makeFunction();
  void makeShared();
  void findTile(Value number);
  Value chunksOfKeys();
  SmallVector<Value> overChunks(Value first, Value end, ValueRange initial,
                                llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body, int64_t step = 1);
  Value makeStatistics(Value chunks);
  Value joinStatistics(Value top, Value sum);
  void makeForward();
  void makeQueries();
  void makeKeys();
  void makeScoreGradients(const Place &place, Value statistics, Value delta, bool both);

  ImplicitLocOpBuilder b;
  IndexMath math;
  const Tile &tile;
  const int64_t most, rows, depth, valueDepth;
  const Type f32, element;
  func::FuncOp function;
  Value thread, words, q, k, v, bias, key, o, statistics, dO, delta, dq, dk, dv;
  // Shared memory: rows of the tile, chunks, scores and their gradients, and both as operands.
  Value ownFirst, ownSecond, chunkFirst, chunkSecond, stage, otherStage, weights, gradients;
  Value indices[Words], causal, queries, keys, scale, keptScale, threshold;
  Value randomKey[2], randomCounter[2]; ///< of Philox; of the counter, what is the same for all elements
  Value batch, head, keyHead, firstRow;
  int64_t sharedBytes = 0;
};

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Rows of 16-bit elements to shared memory, with zeros behind `limit` and behind the depth.
void TileMaker::moveTile(Value from, Value start, Value stride, Value first, Value limit, int64_t height,
                         Value depthWord, Value to) {
  const int64_t width = cast<MemRefType>(to.getType()).getShape()[1] - kVector, across = width / kVector;
  auto type = VectorType::get({kVector}, b.getF16Type());
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  Value x = math.mul(math.rem(thread, math.number(across)), math.number(kVector));
  Value y = math.div(thread, math.number(across)), insideDepth = math.below(x, depthWord);
  // `across` divides the threads or, with depths of 96, leaves some of them idle.
  const int64_t step = threads / across;
  Value works = math.below(y, math.number(step));
  for (int64_t i = 0; i < height; i += step) {
    Value line = math.add(y, math.number(i)), row = math.add(first, line);
    Value valid = math.both(insideDepth, math.below(row, limit));
    Value address = math.choose(valid, math.add(start, math.add(math.mul(row, stride), x)), math.number(0));
    Value value = vector::LoadOp::create(b, type, from, ValueRange{address}, false, llvm::MaybeAlign(16));
    value = math.choose(valid, value, zero);
    Value inside = height - i < step ? math.both(works, math.below(line, math.number(height))) : works;
    auto store = [&] { vector::StoreOp::create(b, value, to, ValueRange{line, x}, false, llvm::MaybeAlign(16)); };
    if (threads % across == 0 && height - i >= step) {
      store();
      continue;
    }
    auto branch = scf::IfOp::create(b, inside, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    store();
  }
}

//===----------------------------------------------------------------------===//
// What warps multiply: four of them, two above two
//===----------------------------------------------------------------------===//

Value TileMaker::fragment(Value memory, StringRef role, Value row, Value column, bool transposed) {
  auto type = gpu::MMAMatrixType::get({16, 16}, b.getF16Type(), role);
  const int64_t pitch = cast<MemRefType>(memory.getType()).getShape()[1];
  auto load = gpu::SubgroupMmaLoadMatrixOp::create(b, type, memory, ValueRange{row, column}, b.getIndexAttr(pitch),
                                                   transposed ? b.getUnitAttr() : UnitAttr());
  if (element.isBF16())
    setAttr<MPTDialect::Bf16AttrHelper>(load);
  return load;
}

Value TileMaker::multiply(Value left, Value right, Value sum, bool transposed) {
  auto result = gpu::SubgroupMmaComputeOp::create(b, sum.getType(), left, right, sum, UnitAttr(),
                                                  transposed ? b.getUnitAttr() : UnitAttr());
  if (element.isBF16())
    setAttr<MPTDialect::Bf16AttrHelper>(result);
  return result;
}

/// Sums of zero for a result of `width` columns.
TileMaker::Fragments TileMaker::zeros(int64_t width) {
  auto type = gpu::MMAMatrixType::get({16, 16}, f32, "COp");
  return Fragments(rows / 32 * (width / 32), gpu::SubgroupMmaConstantMatrixOp::create(b, type, real(0)));
}

/// left right^T, of rows of the tile and of a chunk: a warp has half of the rows and 16 columns.
TileMaker::Fragments TileMaker::scores(Value left, Value right, int64_t width) {
  Value warp = math.div(thread, math.number(32)), two = math.number(2);
  Value row = math.mul(math.div(warp, two), math.number(rows / 2)),
        column = math.mul(math.rem(warp, two), math.number(16));
  Fragments sums = zeros(chunk);
  for (int64_t at = 0; at < width; at += 16) {
    Value other = fragment(right, "BOp", column, math.number(at), true);
    for (auto [i, sum] : llvm::enumerate(sums)) {
      Value own =
          fragment(left, "AOp", math.add(row, math.number(static_cast<int64_t>(i) * 16)), math.number(at), false);
      sum = multiply(own, other, sum, true);
    }
  }
  return sums;
}

void TileMaker::keepScores(ValueRange sums, Value to) {
  Value warp = math.div(thread, math.number(32)), two = math.number(2);
  Value row = math.mul(math.div(warp, two), math.number(rows / 2)),
        column = math.mul(math.rem(warp, two), math.number(16));
  const int64_t pitch = cast<MemRefType>(to.getType()).getShape()[1];
  for (auto [i, sum] : llvm::enumerate(sums))
    gpu::SubgroupMmaStoreMatrixOp::create(b, sum, to,
                                          ValueRange{math.add(row, math.number(static_cast<int64_t>(i) * 16)), column},
                                          b.getIndexAttr(pitch), UnitAttr());
}

/// sums + left right, where left has the tile's rows and the chunk's columns. Of every 32 columns a warp has 16.
TileMaker::Fragments TileMaker::accumulate(ValueRange sums, Value left, Value right, int64_t width) {
  Value warp = math.div(thread, math.number(32)), two = math.number(2);
  Value row = math.mul(math.div(warp, two), math.number(rows / 2)),
        column = math.mul(math.rem(warp, two), math.number(16));
  Fragments result(sums);
  const int64_t across = width / 32;
  for (int64_t at = 0; at < chunk; at += 16) {
    Fragments own;
    for (int64_t i = 0; i < rows / 32; ++i)
      own.push_back(fragment(left, "AOp", math.add(row, math.number(i * 16)), math.number(at), false));
    for (int64_t j = 0; j < across; ++j) {
      Value other = fragment(right, "BOp", math.number(at), math.add(column, math.number(j * 32)), false);
      for (int64_t i = 0; i < rows / 32; ++i)
        result[i * across + j] = multiply(own[i], other, result[i * across + j], false);
    }
  }
  return result;
}

/// Writes sums by way of `stage`, so that neighbours are written by neighbours.
void TileMaker::leave(ValueRange sums, int64_t width, Value to, Value start, Value stride, Value limit, Value depthWord,
                      Value factor) {
  const int64_t across = width / 32, pieces = chunk / kVector;
  for (int64_t j = 0; j < across; ++j) {
    Fragments part;
    for (int64_t i = 0; i < rows / 32; ++i)
      part.push_back(sums[i * across + j]);
    keepScores(part, stage);
    gpu::BarrierOp::create(b);
    Value x = math.mul(math.rem(thread, math.number(pieces)), math.number(kVector));
    Value y = math.div(thread, math.number(pieces)), column = math.add(x, math.number(j * 32));
    for (int64_t i = 0; i < rows; i += threads / pieces) {
      Value line = math.add(y, math.number(i)), row = math.add(firstRow, line);
      Value inside = math.both(math.below(row, limit), math.below(column, depthWord));
      auto branch = scf::IfOp::create(b, inside, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      auto type = VectorType::get({kVector}, f32);
      Value value = vector::LoadOp::create(b, type, stage, ValueRange{line, x}, false, llvm::MaybeAlign(16));
      if (factor)
        value = arith::MulFOp::create(b, value, vector::BroadcastOp::create(b, type, factor));
      value = arith::TruncFOp::create(b, VectorType::get({kVector}, element), value);
      Value address = math.add(start, math.add(math.mul(row, stride), column));
      vector::StoreOp::create(b, value, to, ValueRange{address}, false, llvm::MaybeAlign(16));
    }
    gpu::BarrierOp::create(b);
  }
}

//===----------------------------------------------------------------------===//
// Elements of the score tile
//===----------------------------------------------------------------------===//

/// Forward and for queries, some keys of one row; for keys, the same of one column.
TileMaker::Place TileMaker::placeIn(Value chunkStart) {
  Place place;
  if (tile.kind == Kind::Keys) {
    place.column = math.rem(thread, math.number(chunk));
    place.row = math.mul(math.div(thread, math.number(chunk)), math.number(perThread()));
    place.query = math.add(chunkStart, place.column);
    place.key = math.add(firstRow, place.row);
    return place;
  }
  const int64_t across = chunk / perThread();
  place.row = math.div(thread, math.number(across));
  place.column = math.mul(math.rem(thread, math.number(across)), math.number(perThread()));
  place.query = math.add(firstRow, place.row);
  place.key = math.add(chunkStart, place.column);
  return place;
}

/// `body` for one piece of the thread's elements after the other, with values that it hands on: fewer registers than
/// all of them at once.
SmallVector<Value> TileMaker::eachPiece(const Place &place, ValueRange initial,
                                        llvm::function_ref<SmallVector<Value>(const Place &, ValueRange)> body) {
  return overChunks(
      math.number(0), math.number(perThread()), initial,
      [&](Value i, ValueRange carried) {
        Place piece = place;
        Value &along = tile.kind == Kind::Keys ? piece.row : piece.column;
        along = math.add(along, i);
        piece.key = math.add(piece.key, i);
        return body(piece, carried);
      },
      kPiece);
}

SmallVector<Value> TileMaker::read(Value memory, const Place &place) {
  SmallVector<Value> values;
  if (tile.kind == Kind::Keys) {
    for (int64_t i = 0; i < kPiece; ++i)
      values.push_back(
          memref::LoadOp::create(b, memory, ValueRange{math.add(place.row, math.number(i)), place.column}));
    return values;
  }
  Value piece = vector::LoadOp::create(b, VectorType::get({kPiece}, f32), memory, ValueRange{place.row, place.column},
                                       false, llvm::MaybeAlign(16));
  for (int64_t i = 0; i < kPiece; ++i)
    values.push_back(vector::ExtractOp::create(b, piece, i));
  return values;
}

/// Values as GEMMs take them.
void TileMaker::write(ArrayRef<Value> values, Value memory, const Place &place) {
  auto four = [&](Type type) { return VectorType::get({kPiece}, type); };
  Value value = vector::FromElementsOp::create(b, four(f32), values);
  value = arith::TruncFOp::create(b, four(element), value);
  if (element.isBF16())
    value = arith::BitcastOp::create(b, four(b.getF16Type()), value);
  if (tile.kind != Kind::Keys) {
    vector::StoreOp::create(b, value, memory, ValueRange{place.row, place.column}, false, llvm::MaybeAlign(8));
    return;
  }
  for (int64_t i = 0; i < kPiece; ++i)
    memref::StoreOp::create(b, vector::ExtractOp::create(b, value, i), memory,
                            ValueRange{math.add(place.row, math.number(i)), place.column});
}

Value TileMaker::isSeen(const Place &place, int64_t i) {
  Value behind = math.add(place.query, math.number(1));
  Value limit = math.choose(math.below(behind, keys), behind, keys);
  return math.both(math.below(place.query, queries), math.below(keyOf(place, i), math.choose(causal, limit, keys)));
}

/// scale q k^T + bias, of an element of q k^T.
Value TileMaker::score(Value gemm, const Place &place, int64_t i, Value valid) {
  Value x = arith::MulFOp::create(b, gemm, scale);
  if (!bias)
    return x;
  Value at = math.add(base(Bias, head),
                      math.add(math.mul(place.query, word(Bias + 2)), math.mul(keyOf(place, i), word(Bias + 3))));
  return arith::AddFOp::create(b, x, loadReal(bias, math.choose(valid, at, math.number(0))));
}

/// Words of Philox 4x32-10 (Salmon et al., SC 2011) for the probability of `key` in the row `row` of all rows: those of
/// four keys from there on, or of it alone (see mpt.dropout).
SmallVector<Value> TileMaker::random(Value row, Value first, bool all) {
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
SmallVector<Value> TileMaker::kept(const Place &place) {
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

void TileMaker::makeFunction() {
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

void TileMaker::makeShared() {
  Type half = b.getF16Type();
  const bool byKeys = tile.kind == Kind::Keys, isForward = tile.kind == Kind::Forward;
  ownFirst = shared(rows, depth + kVector, half);
  if (!isForward)
    ownSecond = shared(rows, valueDepth + kVector, half);
  chunkFirst = shared(chunk, depth + kVector, half);
  chunkSecond = shared(chunk, valueDepth + kVector, half);
  stage = shared(rows, chunk + 4, f32);
  if (!isForward)
    otherStage = shared(rows, chunk + 4, f32);
  if (isForward || byKeys)
    weights = shared(rows, chunk + kVector, half);
  if (!isForward)
    gradients = shared(rows, chunk + kVector, half);
  setAttr<MPTDialect::SharedBytesAttrHelper>(function, b.getI64IntegerAttr(sharedBytes));
}

void TileMaker::readWords() {
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
void TileMaker::findTile(Value number) {
  Value rowTiles = word(RowTiles), rest = math.div(number, rowTiles);
  firstRow = math.mul(math.rem(number, rowTiles), math.number(rows));
  Value heads = word(tile.kind == Kind::Keys ? KeyHeads : Heads);
  batch = math.div(rest, heads);
  head = math.rem(rest, heads);
  Value group = math.div(word(Heads), word(KeyHeads));
  keyHead = tile.kind == Kind::Keys ? head : math.div(head, group);
}

/// Chunks of keys that a tile of queries sees.
Value TileMaker::chunksOfKeys() {
  Value end = math.add(firstRow, math.number(rows));
  end = math.choose(math.both(causal, math.below(end, keys)), end, keys);
  return math.div(math.add(end, math.number(chunk - 1)), math.number(chunk));
}

SmallVector<Value> TileMaker::overChunks(Value first, Value end, ValueRange initial,
                                         llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body, int64_t step) {
  auto loop = scf::ForOp::create(b, first, end, math.number(step), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!next.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

/// The statistics of a row from those of its halves: the largest score, and the sum of exponentials below it.
Value TileMaker::joinStatistics(Value top, Value sum) {
  static_assert(rowsOf(Kind::Forward) * 2 == threads, "two threads a row, side by side");
  auto exchanged = [&](Value x) {
    return gpu::ShuffleOp::create(b, x, number32(1), number32(32), gpu::ShuffleMode::XOR).getShuffleResult();
  };
  Value otherTop = exchanged(top), otherSum = exchanged(sum);
  Value larger = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, top, otherTop);
  Value most = finite(math.choose(larger, top, otherTop));
  auto lowered = [&](Value from, Value x) -> Value {
    return arith::MulFOp::create(b, x, math::ExpOp::create(b, arith::SubFOp::create(b, from, most)));
  };
  Value all = arith::AddFOp::create(b, lowered(top, sum), lowered(otherTop, otherSum));
  // The logarithm takes NaN for a number.
  Value isNumber = arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, all, all);
  Value found = math.choose(isNumber, arith::AddFOp::create(b, most, logarithm(b, all)), all);
  Value none = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, all, real(0));
  return math.choose(none, real(-INFINITY), found);
}

/// The statistics of the thread's row, which go to memory too.
Value TileMaker::makeStatistics(Value chunks) {
  Value lowest = real(-INFINITY);
  SmallVector<Value> found = overChunks(math.number(0), chunks, {lowest, real(0)}, [&](Value c, ValueRange carried) {
    Value start = math.mul(c, math.number(chunk));
    moveTile(k, base(K, keyHead), word(K + 2), start, keys, chunk, word(Depth), chunkFirst);
    gpu::BarrierOp::create(b);
    keepScores(scores(ownFirst, chunkFirst, depth), stage);
    gpu::BarrierOp::create(b);
    return eachPiece(placeIn(start), carried, [&](const Place &place, ValueRange before) {
      SmallVector<Value> values;
      Value top = before[0];
      for (auto [i, raw] : llvm::enumerate(read(stage, place))) {
        Value valid = isSeen(place, static_cast<int64_t>(i));
        values.push_back(math.choose(valid, score(raw, place, static_cast<int64_t>(i), valid), lowest));
        Value larger = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, values.back(), top);
        top = math.choose(larger, values.back(), top);
      }
      Value level = finite(top);
      auto below = [&](Value x) -> Value { return math::ExpOp::create(b, arith::SubFOp::create(b, x, level)); };
      Value sum = arith::MulFOp::create(b, before[1], below(before[0]));
      for (Value value : values)
        sum = arith::AddFOp::create(b, sum, below(value));
      return SmallVector<Value>{top, sum};
    });
  });
  Value result = joinStatistics(found[0], found[1]);
  Value row = math.add(firstRow, math.div(thread, math.number(2)));
  Value writes = math.both(math.below(row, queries), math.below(math.rem(thread, math.number(2)), math.number(1)));
  auto branch = scf::IfOp::create(b, writes, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value at = math.add(math.mul(math.add(math.mul(batch, word(Heads)), head), queries), row);
  memref::StoreOp::create(b, result, statistics, ValueRange{at});
  return result;
}

/// Once through the keys for the statistics, once more for the sums of values: no sum has to be scaled later.
void TileMaker::makeForward() {
  moveTile(q, base(Q, head), word(Q + 2), firstRow, queries, rows, word(Depth), ownFirst);
  Value chunks = chunksOfKeys(), level = finite(makeStatistics(chunks));
  SmallVector<Value> sums = overChunks(math.number(0), chunks, zeros(valueDepth), [&](Value c, ValueRange carried) {
    Value start = math.mul(c, math.number(chunk));
    moveTile(k, base(K, keyHead), word(K + 2), start, keys, chunk, word(Depth), chunkFirst);
    gpu::BarrierOp::create(b);
    keepScores(scores(ownFirst, chunkFirst, depth), stage);
    gpu::BarrierOp::create(b);
    moveTile(v, base(V, keyHead), word(V + 2), start, keys, chunk, word(ValueDepth), chunkSecond);
    eachPiece(placeIn(start), {}, [&](const Place &place, ValueRange) {
      SmallVector<Value> values, keeps = kept(place), raw = read(stage, place);
      for (int64_t i = 0; i < kPiece; ++i) {
        Value valid = isSeen(place, i);
        values.push_back(dropped(probability(score(raw[i], place, i, valid), level, valid), keeps[i]));
      }
      write(values, weights, place);
      return SmallVector<Value>();
    });
    gpu::BarrierOp::create(b);
    return accumulate(carried, weights, chunkSecond, valueDepth);
  });
  leave(sums, valueDepth, o, base(O, head), word(O + 2), queries, word(ValueDepth), Value());
}

/// Of scores and the gradients of probabilities in the stages: probabilities where `both`, and gradients of scores.
void TileMaker::makeScoreGradients(const Place &all, Value level, Value sums, bool both) {
  eachPiece(all, {}, [&](const Place &place, ValueRange) {
    SmallVector<Value> ps, ds, keeps = kept(place), raw = read(stage, place), ofOutput = read(otherStage, place);
    for (int64_t i = 0; i < kPiece; ++i) {
      Value valid = isSeen(place, i);
      Value p = probability(score(raw[i], place, i, valid), level, valid);
      Value gradient = arith::SubFOp::create(b, dropped(ofOutput[i], keeps[i]), sums);
      ds.push_back(math.choose(valid, arith::MulFOp::create(b, p, gradient), real(0)));
      ps.push_back(dropped(p, keeps[i]));
    }
    if (both)
      write(ps, weights, place);
    write(ds, gradients, place);
    return SmallVector<Value>();
  });
}

void TileMaker::makeQueries() {
  moveTile(q, base(Q, head), word(Q + 2), firstRow, queries, rows, word(Depth), ownFirst);
  moveTile(dO, base(GradientO, head), word(GradientO + 2), firstRow, queries, rows, word(ValueDepth), ownSecond);
  Place own = placeIn(math.number(0));
  Value at = math.add(math.mul(math.add(math.mul(batch, word(Heads)), head), queries), own.query);
  at = math.choose(math.below(own.query, queries), at, math.number(0));
  Value level = finite(loadReal(statistics, at)), rowSums = loadReal(delta, at);
  SmallVector<Value> sums = overChunks(math.number(0), chunksOfKeys(), zeros(depth), [&](Value c, ValueRange carried) {
    Value start = math.mul(c, math.number(chunk));
    moveTile(k, base(K, keyHead), word(K + 2), start, keys, chunk, word(Depth), chunkFirst);
    moveTile(v, base(V, keyHead), word(V + 2), start, keys, chunk, word(ValueDepth), chunkSecond);
    gpu::BarrierOp::create(b);
    keepScores(scores(ownFirst, chunkFirst, depth), stage);
    keepScores(scores(ownSecond, chunkSecond, valueDepth), otherStage);
    gpu::BarrierOp::create(b);
    makeScoreGradients(placeIn(start), level, rowSums, false);
    gpu::BarrierOp::create(b);
    SmallVector<Value> next = accumulate(carried, gradients, chunkFirst, depth);
    gpu::BarrierOp::create(b);
    return next;
  });
  leave(sums, depth, dq, base(GradientQ, head), word(GradientQ + 2), queries, word(Depth), scale);
}

/// A block has some keys of one head, and goes through all queries of the heads that share it.
void TileMaker::makeKeys() {
  moveTile(k, base(K, keyHead), word(K + 2), firstRow, keys, rows, word(Depth), ownFirst);
  moveTile(v, base(V, keyHead), word(V + 2), firstRow, keys, rows, word(ValueDepth), ownSecond);
  Value chunks = math.div(math.add(queries, math.number(chunk - 1)), math.number(chunk));
  Value first = math.choose(causal, math.div(firstRow, math.number(chunk)), math.number(0));
  first = math.choose(math.below(first, chunks), first, chunks);
  Value group = math.div(word(Heads), word(KeyHeads)), span = math.sub(chunks, first);
  SmallVector<Value> none = zeros(depth);
  none.append(zeros(valueDepth));
  const size_t split = zeros(depth).size();
  SmallVector<Value> sums =
      overChunks(math.number(0), math.mul(group, span), none, [&](Value number, ValueRange carried) {
        Value start = math.mul(math.add(first, math.rem(number, span)), math.number(chunk));
        head = math.add(math.mul(keyHead, group), math.div(number, span));
        moveTile(q, base(Q, head), word(Q + 2), start, queries, chunk, word(Depth), chunkFirst);
        moveTile(dO, base(GradientO, head), word(GradientO + 2), start, queries, chunk, word(ValueDepth), chunkSecond);
        gpu::BarrierOp::create(b);
        keepScores(scores(ownFirst, chunkFirst, depth), stage);
        keepScores(scores(ownSecond, chunkSecond, valueDepth), otherStage);
        gpu::BarrierOp::create(b);
        Place place = placeIn(start);
        Value at = math.add(math.mul(math.add(math.mul(batch, word(Heads)), head), queries), place.query);
        at = math.choose(math.below(place.query, queries), at, math.number(0));
        makeScoreGradients(place, finite(loadReal(statistics, at)), loadReal(delta, at), true);
        gpu::BarrierOp::create(b);
        SmallVector<Value> next = accumulate(carried.take_front(split), gradients, chunkFirst, depth);
        next.append(accumulate(carried.drop_front(split), weights, chunkSecond, valueDepth));
        gpu::BarrierOp::create(b);
        return next;
      });
  ValueRange all(sums);
  leave(all.take_front(split), depth, dk, base(GradientK, keyHead), word(GradientK + 2), keys, word(Depth), scale);
  leave(all.drop_front(split), valueDepth, dv, base(GradientV, keyHead), word(GradientV + 2), keys, word(ValueDepth),
        Value());
}

func::FuncOp TileMaker::make() {
  makeFunction();
  thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  makeShared();
  readWords();
  auto tiles = scf::ForOp::create(b, block, word(Tiles), math.number(gridBlocks));
  func::ReturnOp::create(b);
  b.setInsertionPointToStart(tiles.getBody());
  findTile(tiles.getInductionVar());
  switch (tile.kind) {
  case Kind::Forward:
    makeForward();
    break;
  case Kind::Queries:
    makeQueries();
    break;
  case Kind::Keys:
    makeKeys();
    break;
  }
  return function;
}

} // namespace

func::FuncOp mpt::cuda::makeAttentionTile(OpBuilder &builder, Location loc, const Tile &tile, bool isLarge) {
  return TileMaker(builder, loc, tile, isLarge).make();
}
