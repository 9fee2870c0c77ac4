// SPDX-License-Identifier: Apache-2.0
// Implicit GEMM: tiles of results by blocks, chunks of both operands through shared memory. The operand that a
// convolution reads by positions is gathered from where its positions and taps meet; nothing is stored in between.
#include "ConvKernels.h"

#include "TileGemm.h"

#include "mpt-c/abi.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Memory/Bufferize.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;

namespace {

// Indices of 32 bits reach so far (lib/Target/CUDA/ToNvvm.cpp); the runtime declines larger tensors.
constexpr int64_t kMany = (int64_t(1) << 31) - 8192;
// A coordinate that is nowhere, whatever a tap adds.
constexpr int64_t kNowhere = -(int64_t(1) << 30);

class ConvMaker {
public:
  ConvMaker(OpBuilder &outer, Location loc, const ConvKernel &kernel)
      : b(loc, outer), math{b}, kernel(kernel), weights(kernel.kind == MPT_CONV_BACKWARD_WEIGHTS),
        shape(conv::tileShape(weights, kernel.operand.isF32())),
        width(kernel.vectors ? conv::vectorWidth(kernel.operand.isF32()) : 1) {}
  func::FuncOp make();

private:
  /// A term of the sums: a tap and a channel, or an image and a position.
  struct Term {
    Value valid, channel, image, tap, offset[3];
  };
  struct Piece {
    Value valid, address;
  };

  Value word(int64_t at) { return load(math.number(at)); }
  Value load(Value at) {
    return arith::IndexCastOp::create(b, b.getIndexType(), memref::LoadOp::create(b, words, ValueRange{at}));
  }
  /// Words that no bounds of loops depend on are read from shared memory at each use: registers are for sums.
  Value copied(int64_t at) {
    Value value = memref::LoadOp::create(b, copies, ValueRange{math.number(at)});
    return arith::IndexCastOp::create(b, b.getIndexType(), value);
  }
  Value copiedEntry(int dimension, int64_t field) { return copied(conv::Fixed + dimension * conv::EntryWords + field); }
  /// n / d as n * `multiply` >> `shift`, the words that belong to d.
  Value quotient(Value n, Value multiply, Value shift) {
    auto wide = [&](Value v) -> Value {
      v = arith::IndexCastOp::create(b, b.getI32Type(), v);
      return arith::ExtUIOp::create(b, b.getI64Type(), v);
    };
    Value product = arith::MulIOp::create(b, wide(n), wide(multiply));
    return arith::IndexCastOp::create(b, b.getIndexType(), arith::ShRUIOp::create(b, product, wide(shift)));
  }
  /// Takes the fastest coordinate off.
  Value take(Value &flat, Value extent) {
    Value rest = math.div(flat, extent), at = math.sub(flat, math.mul(rest, extent));
    flat = rest;
    return at;
  }

  void copyWords();
  void findTile();
  void findRows();
  Term filterTerm(Value k);
  Term positionTerm(Value k);
  Piece at(const Term &term, Value base[3], Value image, Value channel, Value valid);
  Piece sourceByRow(const Term &term, Value row);
  Piece filterByRow(const Term &term, Value column);
  Piece filterByTerm(const Term &term, Value column);
  using TermOf = llvm::function_ref<Term(Value)>;
  using PieceOf = llvm::function_ref<Piece(const Term &, Value)>;
  void eachOperand(llvm::function_ref<void(const OperandTile &tile, Value from, TermOf termOf, PieceOf pieceOf)> visit);
  SmallVector<Value> loadChunk(Value chunk);
  void storeChunk(ValueRange values, Value buffer);
  void moveChunk(Value chunk, Value buffer);
  void loadOperand(const OperandTile &tile, Value from, Value chunk, Value line, int64_t pieces, TermOf termOf,
                   PieceOf pieceOf, SmallVectorImpl<Value> &into);
  void storeOperand(const OperandTile &tile, Value line, int64_t pieces, ValueRange &values, Value buffer);
  int64_t stepOf(const OperandTile &tile) const;
  int64_t piecesOf(const OperandTile &tile) const;
  void eachPiece(const OperandTile &tile, Value from, int64_t pieces,
                 llvm::function_ref<void(Value line, Value term)> fill);
  void storeTile(ValueRange sums);

  ImplicitLocOpBuilder b;
  IndexMath math;
  const ConvKernel &kernel;
  const bool weights;
  const conv::TileShape shape;
  const int64_t width;
  Value thread, words, first, second, target; // the arguments
  std::unique_ptr<TileGemm> gemm;
  OperandTile left, right;
  // Shared memory: words and the tile's entries, where rows read and write, sums on their way.
  Value copies, rowTable, rowTarget, stage;
  Value tile, group, slice, firstRow, firstColumn, residue[3], terms, begin;
};

void ConvMaker::copyWords() {
  static_assert(conv::Fixed <= conv::threads);
  Value inside = math.below(thread, math.number(conv::Fixed));
  auto branch = scf::IfOp::create(b, inside, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  memref::StoreOp::create(b, memref::LoadOp::create(b, words, ValueRange{thread}), copies, ValueRange{thread});
}

/// The tile's place, and the table's entries for its class of positions.
void ConvMaker::findTile() {
  Value rest = tile, entries[3];
  firstColumn = math.mul(take(rest, word(conv::ColumnTiles)), math.number(shape.columns));
  firstRow = math.mul(take(rest, word(conv::RowTiles)), math.number(shape.rows));
  Value number = take(rest, word(conv::Classes));
  group = rest;
  if (weights) {
    Value length = math.mul(word(conv::SliceChunks), math.number(shape.depth));
    slice = number;
    begin = math.mul(slice, length);
    terms = arith::MinUIOp::create(b, math.add(begin, length), word(conv::Positions));
  } else {
    begin = math.number(0);
    terms = word(conv::Channels);
  }
  for (int i = 2; i >= 0; --i) {
    residue[i] = weights ? math.number(0) : take(number, word(conv::Residues + i));
    entries[i] = math.add(word(conv::TableAt + i), math.mul(residue[i], math.number(conv::EntryWords)));
    if (!weights)
      terms = math.mul(terms, load(math.add(entries[i], math.number(conv::Count))));
  }
  for (int i = 0; i < 3; ++i) {
    Value field = math.sub(thread, math.number(i * conv::EntryWords));
    auto branch = scf::IfOp::create(b, math.below(field, math.number(conv::EntryWords)), /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(branch.thenBlock());
    Value value = memref::LoadOp::create(b, words, ValueRange{math.add(entries[i], field)});
    memref::StoreOp::create(b, value, copies, ValueRange{math.add(thread, math.number(conv::Fixed))});
  }
}

/// Where the rows of a tile read and write, a thread each.
void ConvMaker::findRows() {
  Value row = math.add(firstRow, thread), inside = math.below(row, word(conv::Rows)), q[3];
  for (int i = 2; i >= 0; --i)
    q[i] = take(row, word(conv::Grid + i));
  Value to = row;
  for (int i = 0; i < 3; ++i) {
    Value at = math.add(math.mul(q[i], word(conv::TargetScale + i)), residue[i]), extent = word(conv::Target + i);
    inside = math.both(inside, math.below(at, extent));
    to = math.add(math.mul(to, extent), at);
  }
  auto store = [&](Value value, Value memory, ArrayRef<Value> at) {
    memref::StoreOp::create(b, arith::IndexCastOp::create(b, b.getI32Type(), value), memory, at);
  };
  store(row, rowTable, {thread, math.number(0)});
  for (int i = 0; i < 3; ++i) {
    Value from =
        math.add(math.mul(q[i], word(conv::GridScale + i)),
                 load(math.add(word(conv::TableAt + i), math.add(math.mul(residue[i], math.number(conv::EntryWords)),
                                                                 math.number(conv::Base)))));
    store(math.choose(inside, from, math.number(kNowhere)), rowTable, {thread, math.number(1 + i)});
  }
  store(math.choose(inside, to, math.number(-1)), rowTarget, {thread});
}

/// Term k of a filter: a tap of the tile's class and a channel.
ConvMaker::Term ConvMaker::filterTerm(Value k) {
  Term term;
  term.valid = math.below(k, terms);
  Value tap = quotient(k, copied(conv::ChannelsMultiply), copied(conv::ChannelsShift)), j[3];
  term.channel = math.sub(k, math.mul(tap, copied(conv::Channels)));
  for (int i = 2; i > 0; --i) {
    Value rest = quotient(tap, copiedEntry(i, conv::CountMultiply), copiedEntry(i, conv::CountShift));
    j[i] = math.sub(tap, math.mul(rest, copiedEntry(i, conv::Count)));
    tap = rest;
  }
  j[0] = tap;
  for (int i = 0; i < 3; ++i) {
    term.offset[i] = math.mul(j[i], copied(conv::Reach + i));
    Value at = math.add(copiedEntry(i, conv::First), math.mul(j[i], copied(conv::TapStep + i)));
    term.tap = i ? math.add(math.mul(term.tap, copied(conv::Kernel + i)), at) : at;
  }
  return term;
}

/// Term k of a filter's gradient: a position of y.
ConvMaker::Term ConvMaker::positionTerm(Value k) {
  Term term;
  term.valid = math.below(k, terms);
  term.tap = k;
  Value rest = k;
  for (int i = 2; i >= 0; --i) {
    Value more = quotient(rest, copied(conv::GridMultiply + i), copied(conv::GridShift + i));
    term.offset[i] = math.mul(math.sub(rest, math.mul(more, copied(conv::Grid + i))), copied(conv::GridScale + i));
    rest = more;
  }
  term.image = rest;
  return term;
}

/// An element of the operand that is read by positions.
ConvMaker::Piece ConvMaker::at(const Term &term, Value base[3], Value image, Value channel, Value valid) {
  Value address = image;
  for (int i = 0; i < 3; ++i) {
    Value at = math.add(base[i], term.offset[i]);
    Value extent = copied(conv::Source + i);
    valid = math.both(valid, math.below(at, extent));
    address = math.add(math.mul(address, extent), at);
  }
  return {valid, math.add(math.mul(address, copied(conv::SourceChannels)), channel)};
}

ConvMaker::Piece ConvMaker::sourceByRow(const Term &term, Value row) {
  auto four = VectorType::get({4}, b.getI32Type());
  Value info = vector::LoadOp::create(b, four, rowTable, ValueRange{row, math.number(0)}, false, llvm::MaybeAlign(16));
  Value number[4];
  for (int i = 0; i < 4; ++i)
    number[i] = arith::IndexCastOp::create(b, b.getIndexType(), vector::ExtractOp::create(b, info, i));
  return at(term, number + 1, number[0], math.add(math.mul(group, copied(conv::Channels)), term.channel), term.valid);
}

/// An element of the filters [oc, taps, channels]: of output channel `column`, by terms over taps and input channels.
ConvMaker::Piece ConvMaker::filterByRow(const Term &term, Value column) {
  Value columns = copied(conv::Columns), filter = math.add(math.mul(group, columns), column);
  Value address = math.add(math.mul(filter, copied(conv::Taps)), term.tap);
  return {math.both(term.valid, math.below(column, columns)),
          math.add(math.mul(address, copied(conv::Channels)), term.channel)};
}

/// Of input channel `column`, by terms over taps and output channels.
ConvMaker::Piece ConvMaker::filterByTerm(const Term &term, Value column) {
  Value columns = copied(conv::Columns), filter = math.add(math.mul(group, copied(conv::Channels)), term.channel);
  Value address = math.add(math.mul(filter, copied(conv::Taps)), term.tap);
  return {math.both(term.valid, math.below(column, columns)), math.add(math.mul(address, columns), column)};
}

/// Lines that threads side by side access at a time, and how often that makes a chunk.
int64_t ConvMaker::stepOf(const OperandTile &tile) const {
  return conv::threads * width / (tile.depthFirst ? shape.depth : tile.extent);
}
int64_t ConvMaker::piecesOf(const OperandTile &tile) const {
  return (tile.depthFirst ? tile.extent : shape.depth) / stepOf(tile);
}

/// This thread's pieces of a chunk, from line `from` on: accesses of neighbours by neighbours.
void ConvMaker::eachPiece(const OperandTile &tile, Value from, int64_t pieces,
                          llvm::function_ref<void(Value line, Value term)> fill) {
  int64_t across = (tile.depthFirst ? shape.depth : tile.extent) / width;
  Value x = math.mul(math.rem(thread, math.number(across)), math.number(width));
  Value y = math.add(from, math.div(thread, math.number(across)));
  for (int64_t i = 0; i < pieces; ++i) {
    Value far = math.add(y, math.number(i * stepOf(tile)));
    tile.depthFirst ? fill(far, x) : fill(x, far);
  }
}

void ConvMaker::loadOperand(const OperandTile &tile, Value from, Value chunk, Value line, int64_t pieces, TermOf termOf,
                            PieceOf pieceOf, SmallVectorImpl<Value> &into) {
  Type element = cast<MemRefType>(from.getType()).getElementType();
  auto vector = VectorType::get({width}, element);
  int64_t bytes = width * element.getIntOrFloatBitWidth() / 8;
  Value start = math.add(begin, math.mul(chunk, math.number(shape.depth)));
  Value last;
  Term term;
  eachPiece(tile, line, pieces, [&](Value line, Value k) {
    if (k != last)
      term = termOf(math.add(start, k));
    last = k;
    Piece piece = pieceOf(term, line);
    Value address = math.choose(piece.valid, piece.address, math.number(0));
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(width > 1 ? Type(vector) : element));
    Value read =
        width > 1 ? Value(vector::LoadOp::create(b, vector, from, ValueRange{address}, false, llvm::MaybeAlign(bytes)))
                  : Value(memref::LoadOp::create(b, from, ValueRange{address}));
    into.push_back(math.choose(piece.valid, read, zero));
  });
}

void ConvMaker::eachOperand(
    llvm::function_ref<void(const OperandTile &tile, Value from, TermOf termOf, PieceOf pieceOf)> visit) {
  auto columnAt = [&](Value line) { return math.add(firstColumn, line); };
  if (!weights) {
    auto termOf = [&](Value k) { return filterTerm(k); };
    visit(left, first, termOf, [&](const Term &t, Value line) { return sourceByRow(t, line); });
    visit(right, second, termOf, [&](const Term &t, Value line) {
      return right.depthFirst ? filterByRow(t, columnAt(line)) : filterByTerm(t, columnAt(line));
    });
    return;
  }
  visit(
      left, first,
      [&](Value k) {
        Term term;
        term.valid = math.below(k, terms);
        term.tap = k;
        return term;
      },
      [&](const Term &t, Value line) -> Piece {
        Value row = math.add(firstRow, line), rows = copied(conv::Rows);
        Value channel = math.add(math.mul(group, rows), row);
        return {math.both(t.valid, math.below(row, rows)),
                math.add(math.mul(t.tap, copied(conv::TargetChannels)), channel)};
      });
  // A thread reads one tap and one run of channels throughout.
  Value line, channel, from[3], inside;
  visit(
      right, second, [&](Value k) { return positionTerm(k); },
      [&](const Term &t, Value at) {
        if (at != line) {
          line = at;
          Value flat = columnAt(line), channels = copied(conv::Channels);
          inside = math.below(flat, copied(conv::Columns));
          Value tap = quotient(flat, copied(conv::ChannelsMultiply), copied(conv::ChannelsShift));
          channel = math.add(math.mul(group, channels), math.sub(flat, math.mul(tap, channels)));
          for (int i = 2; i >= 0; --i) {
            Value j = i > 0 ? take(tap, copied(conv::Kernel + i)) : tap;
            from[i] = math.add(copiedEntry(i, conv::Base), math.mul(j, copied(conv::Reach + i)));
          }
        }
        return this->at(t, from, t.image, channel, math.both(t.valid, inside));
      });
}

void ConvMaker::storeOperand(const OperandTile &tile, Value line, int64_t pieces, ValueRange &values, Value buffer) {
  const bool depthFirst = tile.depthFirst && gemm->keepsDepthFirst();
  eachPiece(tile, line, pieces, [&](Value line, Value k) {
    Value value = values.front();
    values = values.drop_front();
    auto place = [&](Value k) {
      return depthFirst ? SmallVector<Value>{buffer, line, k} : SmallVector<Value>{buffer, k, line};
    };
    if (width == 1)
      memref::StoreOp::create(b, value, tile.memory, place(k));
    else if (depthFirst == tile.depthFirst)
      vector::StoreOp::create(b, value, tile.memory, place(k), false, llvm::MaybeAlign(16));
    else
      for (int64_t i = 0; i < width; ++i)
        memref::StoreOp::create(b, vector::ExtractOp::create(b, value, i), tile.memory,
                                place(math.add(k, math.number(i))));
  });
}

SmallVector<Value> ConvMaker::loadChunk(Value chunk) {
  SmallVector<Value> values;
  eachOperand([&](const OperandTile &tile, Value from, TermOf termOf, PieceOf pieceOf) {
    loadOperand(tile, from, chunk, math.number(0), piecesOf(tile), termOf, pieceOf, values);
  });
  return values;
}

void ConvMaker::storeChunk(ValueRange values, Value buffer) {
  for (const OperandTile *tile : {&left, &right})
    storeOperand(*tile, math.number(0), piecesOf(*tile), values, buffer);
}

/// Both, some accesses at a time.
void ConvMaker::moveChunk(Value chunk, Value buffer) {
  eachOperand([&](const OperandTile &tile, Value from, TermOf termOf, PieceOf pieceOf) {
    const int64_t pieces = std::min<int64_t>(piecesOf(tile), kernel.operand.isF32() ? 4 : 8),
                  lines = piecesOf(tile) * stepOf(tile);
    auto loop = scf::ForOp::create(b, math.number(0), math.number(lines), math.number(pieces * stepOf(tile)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> values;
    loadOperand(tile, from, chunk, loop.getInductionVar(), pieces, termOf, pieceOf, values);
    ValueRange rest(values);
    storeOperand(tile, loop.getInductionVar(), pieces, rest, buffer);
  });
}

/// Sums of all threads through shared memory, so that neighbours are written by neighbours.
void ConvMaker::storeTile(ValueRange sums) {
  Type element = cast<MemRefType>(target.getType()).getElementType(), single = b.getF32Type();
  // Four FP32 numbers or eight narrow ones are 16 bytes.
  const int64_t run = std::min<int64_t>(width, element.isF32() ? 4 : 8), across = shape.columns / run;
  Value x = math.mul(math.rem(thread, math.number(across)), math.number(run));
  Value y = math.div(thread, math.number(across)), column = math.add(firstColumn, x);
  Value rows = copied(conv::Rows), columns = copied(conv::Columns), targetChannels = copied(conv::TargetChannels);
  Value insideColumn = math.below(column, columns);
  for (int64_t pass = 0; pass < gemm->passes(); ++pass) {
    gemm->leave(pass, sums, stage);
    gpu::BarrierOp::create(b);
    for (int64_t s = 0; s < gemm->stageRows(); s += conv::threads / across) {
      Value staged = math.add(y, math.number(s)), row = gemm->rowOf(pass, staged), address, inside;
      if (weights) {
        row = math.add(firstRow, row);
        inside = math.both(insideColumn, math.below(row, rows));
        Value all = math.mul(targetChannels, columns);
        address = math.add(math.mul(math.add(math.mul(group, rows), row), columns), column);
        address = math.add(math.mul(slice, all), address);
      } else {
        Value to = memref::LoadOp::create(b, rowTarget, ValueRange{row});
        to = arith::IndexCastOp::create(b, b.getIndexType(), to);
        inside = math.both(insideColumn, arith::CmpIOp::create(b, arith::CmpIPredicate::sge, to, math.number(0)));
        address = math.add(math.mul(to, targetChannels), math.add(math.mul(group, columns), column));
      }
      auto branch = scf::IfOp::create(b, inside, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(branch.thenBlock());
      if (run == 1) {
        Value value = memref::LoadOp::create(b, stage, ValueRange{staged, x});
        if (element != single)
          value = arith::TruncFOp::create(b, element, value);
        memref::StoreOp::create(b, value, target, ValueRange{address});
        continue;
      }
      Value value = vector::LoadOp::create(b, VectorType::get({run}, single), stage, ValueRange{staged, x}, false,
                                           llvm::MaybeAlign(16));
      if (element != single)
        value = arith::TruncFOp::create(b, VectorType::get({run}, element), value);
      vector::StoreOp::create(b, value, target, ValueRange{address}, false,
                              llvm::MaybeAlign(run * element.getIntOrFloatBitWidth() / 8));
    }
    gpu::BarrierOp::create(b);
  }
}

func::FuncOp ConvMaker::make() {
  // Operands of BF16 are moved as FP16, in which GEMMs take them.
  Type operand = kernel.operand.isBF16() ? b.getF16Type() : kernel.operand;
  auto memory = [&](Type element) { return MemRefType::get({kMany}, element); };
  SmallVector<Type> types{memory(operand), memory(operand), memory(weights ? b.getF32Type() : kernel.result),
                          MemRefType::get({conv::Fixed * 1024}, b.getI32Type())};
  auto function = func::FuncOp::create(b, kernel.name(), b.getFunctionType(types, {}));
  function.setPrivate();
  setAttr<MPTDialect::KernelAttrHelper>(function);
  setAttr<MPTDialect::GridAttrHelper>(function, b.getDenseI64ArrayAttr({conv::gridBlocks, 1, 1}));
  setAttr<MPTDialect::BlockAttrHelper>(function, b.getDenseI64ArrayAttr({conv::threads, 1, 1}));
  setAttr<MPTDialect::ScheduleAttrHelper>(function, b.getStringAttr("implicit-gemm"));
  for (unsigned i : {0, 1, 3})
    for (StringRef attribute : {"llvm.readonly", "llvm.noalias"})
      function.setArgAttr(i, attribute, b.getUnitAttr());
  b.setInsertionPointToStart(function.addEntryBlock());
  first = function.getArgument(0), second = function.getArgument(1), target = function.getArgument(2);
  words = function.getArgument(3);
  thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  gemm = TileGemm::create(b, kernel.operand, shape, thread);
  int64_t bytes = 0;
  auto tileOf = [&](int64_t extent, bool depthFirst) {
    std::array<int64_t, 2> extents = gemm->extents(extent, depthFirst);
    return OperandTile{extent, depthFirst, sharedMemory(b, {2, extents[0], extents[1]}, operand, bytes)};
  };
  left = tileOf(shape.rows, !weights);
  right = tileOf(shape.columns, kernel.kind == MPT_CONV_FORWARD);
  copies = sharedMemory(b, {conv::Fixed + 3 * conv::EntryWords}, b.getI32Type(), bytes);
  stage = sharedMemory(b, {gemm->stageRows(), shape.columns + 4}, b.getF32Type(), bytes);
  if (!weights) {
    rowTable = sharedMemory(b, {shape.rows, 4}, b.getI32Type(), bytes);
    rowTarget = sharedMemory(b, {shape.rows}, b.getI32Type(), bytes);
  }
  setAttr<MPTDialect::SharedBytesAttrHelper>(function, b.getI64IntegerAttr(bytes));
  copyWords();

  auto tiles = scf::ForOp::create(b, block, word(conv::Tiles), math.number(conv::gridBlocks));
  func::ReturnOp::create(b);
  b.setInsertionPointToStart(tiles.getBody());
  tile = tiles.getInductionVar();
  findTile();
  if (!weights)
    findRows();
  gpu::BarrierOp::create(b);
  // Bounds that no term reaches: chunks of them are zeros.
  Value depth = math.number(shape.depth);
  Value length = math.sub(arith::MaxUIOp::create(b, terms, begin), begin);
  Value chunks = math.div(math.add(length, math.number(shape.depth - 1)), depth);
  if (kernel.vectors)
    storeChunk(loadChunk(math.number(0)), math.number(0));
  else
    moveChunk(math.number(0), math.number(0));
  gpu::BarrierOp::create(b);
  auto loop = scf::ForOp::create(b, math.number(0), chunks, math.number(1), gemm->start());
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value next = math.add(loop.getInductionVar(), math.number(1)), two = math.number(2);
    Value buffer = math.rem(loop.getInductionVar(), two), other = math.rem(next, two);
    SmallVector<Value> sums;
    // Vectors arrive while the chunk before is added; single elements would need too many registers for that.
    if (kernel.vectors) {
      SmallVector<Value> values = loadChunk(next);
      sums = gemm->add(left, right, buffer, loop.getRegionIterArgs());
      storeChunk(values, other);
    } else {
      moveChunk(next, other);
      sums = gemm->add(left, right, buffer, loop.getRegionIterArgs());
    }
    gpu::BarrierOp::create(b);
    scf::YieldOp::create(b, sums);
  }
  storeTile(loop.getResults());
  return function;
}

StringRef textOf(Type type) { return type.isF32() ? "f32" : type.isF16() ? "f16" : "bf16"; }

} // namespace

std::string ConvKernel::name() const {
  const char *kinds[] = {"forward", "data", "weights"};
  return ("mpt_conv_" + Twine(kinds[kind]) + "_" + textOf(operand) + "_" + textOf(result) + (vectors ? "_v" : "_s"))
      .str();
}

func::FuncOp mpt::cuda::makeConvKernel(OpBuilder &builder, Location loc, const ConvKernel &kernel) {
  return ConvMaker(builder, loc, kernel).make();
}
