// SPDX-License-Identifier: Apache-2.0
// Attention in tiles on Tensor Cores (Dao, arXiv 2307.08691): scores live in shared memory alone, their statistics make
// the backward pass independent of the order of keys, and dropout draws its numbers again.
#include "AttentionKernel.h"

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

class TileMaker : AttentionKernel {
public:
  TileMaker(OpBuilder &outer, Location loc, const Tile &tile, bool isLarge)
      : AttentionKernel(outer, loc, tile, isLarge), depth(paddedDepth(tile.depth)),
        valueDepth(paddedDepth(tile.valueDepth)) {}
  func::FuncOp make();

private:
  /// 16 x 16 matrices of a warp, rows first.
  using Fragments = SmallVector<Value>;

  // ---- memory
  Value shared(int64_t height, int64_t width, Type type) { return sharedMemory(b, {height, width}, type, sharedBytes); }
  void moveTile(Value from, Value start, Value stride, Value first, Value limit, int64_t height, Value depthWord,
                Value to);

  // ---- products of warps
  Value fragment(Value memory, StringRef role, Value row, Value column, bool transposed);
  Fragments zeros(int64_t width);
  Fragments scores(Value left, Value right, int64_t width);
  void keepScores(ValueRange sums, Value stage);
  Fragments accumulate(ValueRange sums, Value left, Value right, int64_t width);
  Value multiply(Value left, Value right, Value sum, bool transposed);
  void leave(ValueRange sums, int64_t width, Value to, Value start, Value stride, Value limit, Value depthWord,
             Value factor);

  // ---- elements that are this thread's
  int64_t perThread() const { return rows * chunk / threads; }
  Place placeIn(Value chunkFirst);
  SmallVector<Value> eachPiece(const Place &place, ValueRange initial,
                               llvm::function_ref<SmallVector<Value>(const Place &, ValueRange)> body);
  SmallVector<Value> read(Value memory, const Place &place);
  void write(ArrayRef<Value> values, Value memory, const Place &place);

  // ---- the kernel
  void makeShared();
  Value makeStatistics(Value chunks);
  void makeForward();
  void makeQueries();
  void makeKeys();
  void makeScoreGradients(const Place &place, Value statistics, Value delta, bool both);

  const int64_t depth, valueDepth;
  // Shared memory: rows of the tile, chunks, scores and their gradients, and both as operands.
  Value ownFirst, ownSecond, chunkFirst, chunkSecond, stage, otherStage, weights, gradients;
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
// Products of four warps, two above two
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
AttentionKernel::Place TileMaker::placeIn(Value chunkStart) {
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

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

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
  static_assert(rowsOf(Kind::Forward) * 2 == threads, "two threads a row, side by side");
  Value result = joinedStatistics(found[0], found[1], 2);
  leaveStatistics(result, math.add(firstRow, math.div(thread, math.number(2))),
                  math.below(math.rem(thread, math.number(2)), math.number(1)));
  return result;
}

/// Once through the keys for the statistics, once more for the sums of values: no sum has to be scaled later.
void TileMaker::makeForward() {
  moveTile(q, base(Q, head), word(Q + 2), firstRow, queries, rows, word(Depth), ownFirst);
  Value chunks = chunksOfKeys(chunk), level = finite(makeStatistics(chunks));
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
  SmallVector<Value> sums =
      overChunks(math.number(0), chunksOfKeys(chunk), zeros(depth), [&](Value c, ValueRange carried) {
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
