// SPDX-License-Identifier: Apache-2.0
// Attention's forward kernel for sm_90a: products by `wgmma` (PTX ISA, "Asynchronous Warpgroup Level Matrix
// Instructions"), whose sums and probabilities stay in registers, and operands by `cp.async`, two of them on their way.
//
// The four warps have 16 rows each. Of a 64 x 64 result, lane l = 4 r + c of a warp has rows r and r + 8 of the warp's,
// and of every 8 columns numbers 2 c and 2 c + 1. Keys lie in shared memory in such an order that two
// neighbouring eights of columns are four neighbouring keys of a lane (`placeOfKey`).
#include "AttentionKernel.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;
using namespace mpt::attention;

namespace {

/// Rows of an item: queries, or a chunk of keys or values; elements of a line of 128 bytes, over which swizzles go.
constexpr int64_t kRows = 64, kLine = 64, kStep = 16, kSlots = 3;
constexpr int64_t kSums = 32;             ///< of 64 x 64 results, a thread's
constexpr int64_t kPlane = kRows * kLine; ///< elements of a matrix one line wide
constexpr int64_t kUnit = 16;             ///< bytes that descriptors count in
constexpr int64_t kStepUnits = kStep * 2 / kUnit, kPlaneUnits = kPlane * 2 / kUnit, kLineUnits = kLine * 2 / kUnit;

int64_t lines(int64_t depth) { return (depth + kLine - 1) / kLine; }

class WarpgroupMaker : AttentionKernel {
public:
  WarpgroupMaker(OpBuilder &outer, Location loc, const Tile &tile, bool isLarge)
      : AttentionKernel(outer, loc, tile, isLarge), wide(lines(tile.depth)), valueWide(lines(tile.valueDepth)),
        slotSize(std::max(wide, valueWide) * kPlane) {}
  func::FuncOp make();

private:
  static_assert(rowsOf(Kind::Forward) == kRows && threads == 128, "a warpgroup makes 64 rows");

  Value opaque(Value x);

  // ---- shared memory: a ring of kSlots buffers, an item each
  Value slotOf(Value item) { return math.mul(math.rem(item, math.number(kSlots)), math.number(slotSize)); }
  Value swizzled(Value row, Value column);
  Value placeOfKey(Value key);
  void load(Value from, int64_t strides, Value head, Value first, Value limit, int64_t width, bool ofKeys, Value slot);
  void loadKeys(Value chunkNumber, Value slot) {
    load(k, K, keyHead, math.mul(chunkNumber, math.number(kRows)), keys, wide, true, slot);
  }
  void loadValues(Value chunkNumber, Value slot) {
    load(v, V, keyHead, math.mul(chunkNumber, math.number(kRows)), keys, valueWide, true, slot);
  }
  void whenever(Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise = nullptr);
  void awaitItem();

  // ---- products
  Value descriptor(Value slot);
  Values multiply(ValueRange sums, int64_t results, ArrayRef<Values> factors, ArrayRef<Values> matrices, bool byRows);
  Values readQueries(Value slot);
  Values scores(ValueRange operand, Value slot);
  Values accumulate(ValueRange sums, ValueRange weights, Value slot);
  Value packed(Value low, Value high);

  // ---- the kernel
  Value rowOf(int64_t half) { return math.add(ownRow, math.number(half * 8)); }
  Place placeIn(Value chunkStart, int64_t group, int64_t half);
  Value isSeen(Value chunkStart, int64_t group, int64_t half, int64_t i);
  void makeStatistics(Value chunks, ValueRange operand);
  Value keptBits(Value start);
  Values probabilities(ValueRange products, Value start, Value keeps);
  void makeTile();
  void leave(ValueRange sums);

  const int64_t wide, valueWide, slotSize; ///< lines; elements
  Value ring, ringAddress, ownRow, quad;   ///< the thread's first row in the tile; its number among four of a row
  Value seen[2], levels[2];                ///< of the thread's two rows: keys, and the statistics
};

/// x, an index or 32 bits, with its origin hidden from the compiler: values computed from it stay where they are used.
/// Addresses of all loads and stores, kept from one tile to the next, would take the registers of sums.
Value WarpgroupMaker::opaque(Value x) {
  Type type = x.getType();
  const bool far = type.isIndex() && most > std::numeric_limits<int32_t>::max();
  if (type.isIndex())
    x = arith::IndexCastUIOp::create(b, far ? b.getI64Type() : b.getI32Type(), x);
  x = LLVM::InlineAsmOp::create(b, TypeRange(x.getType()), ValueRange(x), "", far ? "=l,0" : "=r,0", true, false,
                                LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr())
          .getRes();
  return type.isIndex() ? arith::IndexCastUIOp::create(b, type, x).getResult() : x;
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

/// The index of an element within planes of 128-byte lines under the 128-byte swizzle: of a line, unit u of 16 bytes
/// lies at u ^ (line mod 8).
Value WarpgroupMaker::swizzled(Value row, Value column) {
  Value plane = math.div(column, math.number(kLine)), within = math.rem(column, math.number(kLine));
  Value unit = math.div(within, math.number(kVector));
  unit = arith::XOrIOp::create(b, unit, math.rem(row, math.number(8)));
  Value line = math.add(math.mul(plane, math.number(kPlane)), math.mul(row, math.number(kLine)));
  return math.add(math.add(line, math.mul(unit, math.number(kVector))), math.rem(within, math.number(kVector)));
}

/// The row of shared memory, and so the column of scores, where a chunk's key lies: key 4 c + 2 a + e of every 16 at
/// 8 a + 2 c + e.
Value WarpgroupMaker::placeOfKey(Value key) {
  Value sixteen = math.sub(key, math.rem(key, math.number(16)));
  Value eight = math.mul(math.rem(math.div(key, math.number(2)), math.number(2)), math.number(8));
  Value pair = math.mul(math.rem(math.div(key, math.number(4)), math.number(4)), math.number(2));
  return math.add(math.add(sixteen, eight), math.add(pair, math.rem(key, math.number(2))));
}

/// Begins to copy 64 rows into `slot`, with zeros behind `limit` and behind the depth.
void WarpgroupMaker::load(Value from, int64_t strides, Value ofHead, Value first, Value limit, int64_t width,
                          bool ofKeys, Value slot) {
  const int64_t across = width * kLine / kVector, step = threads / across;
  Value depthWord = word(strides == V ? ValueDepth : Depth), start = base(strides, ofHead);
  Value own = opaque(thread), stride = opaque(word(strides + 2));
  Value x = math.mul(math.rem(own, math.number(across)), math.number(kVector));
  Value y = math.div(own, math.number(across)), insideDepth = math.below(x, depthWord);
  // Lines 16 apart lie 16 apart, under the same swizzle.
  Values places;
  for (int64_t i = 0; i < kStep; i += step) {
    Value line = math.add(y, math.number(i));
    places.push_back(math.add(slot, swizzled(ofKeys ? placeOfKey(line) : line, x)));
  }
  for (int64_t i = 0; i < kRows; i += step) {
    Value row = math.add(first, math.add(y, math.number(i)));
    Value valid = math.both(insideDepth, math.below(row, limit));
    Value address = math.add(start, math.add(math.mul(row, stride), x));
    address = math.choose(valid, address, math.number(0));
    Value to = math.add(places[i % kStep / step], math.number(i / kStep * kStep * kLine));
    nvgpu::DeviceAsyncCopyOp::create(b, nvgpu::DeviceAsyncTokenType::get(b.getContext()), ring, ValueRange{to}, from,
                                     ValueRange{address}, b.getIndexAttr(kVector),
                                     math.choose(valid, math.number(kVector), math.number(0)), b.getUnitAttr());
  }
}

void WarpgroupMaker::whenever(Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise) {
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/static_cast<bool>(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  then();
  if (!otherwise)
    return;
  b.setInsertionPointToStart(branch.elseBlock());
  otherwise();
}

void statement(ImplicitLocOpBuilder &b, StringRef text) {
  LLVM::InlineAsmOp::create(b, TypeRange(), ValueRange(), text, "~{memory}", /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
}

/// All threads' copies of the oldest item on its way are there for `wgmma`, and the item before it is no longer read.
void WarpgroupMaker::awaitItem() {
  NVVM::CpAsyncWaitGroupOp::create(b, 1u);
  statement(b, "fence.proxy.async.shared::cta;");
  gpu::BarrierOp::create(b);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Of `slot`: 128-byte swizzle, groups of eight lines side by side. No product is wider than a line, so that the
/// leading dimension's stride is not used.
Value WarpgroupMaker::descriptor(Value slot) {
  constexpr int64_t form = int64_t(1) << 62 | 8 * kLineUnits << 32 | int64_t(1) << 16;
  Value address = math.add(ringAddress, math.mul(slot, math.number(2)));
  Value units = arith::IndexCastUIOp::create(b, b.getI64Type(), math.div(address, math.number(kUnit)));
  return arith::OrIOp::create(b, units, arith::ConstantOp::create(b, b.getI64IntegerAttr(form)));
}

/// sums + factors matrices, in one statement that begins with the fence and ends when the sums are there: nothing of
/// the compiler's can come between. Result r is the sum over s of factors[s], a 64 x 16 operand in registers, times
/// matrices[r][s], 16 x 64 in shared memory; their columns lie there in lines, or their rows. Without `sums` from zero.
AttentionKernel::Values WarpgroupMaker::multiply(ValueRange sums, int64_t results, ArrayRef<Values> factors,
                                                 ArrayRef<Values> matrices, bool byRows) {
  const bool begins = sums.empty();
  const int64_t count = results * kSums;
  Values operands(sums);
  std::string constraints, text = "wgmma.fence.sync.aligned;\n";
  for (int64_t i = 0; i < count; ++i)
    constraints += begins ? "=&f," : "=f,";
  for (int64_t i = 0; !begins && i < count; ++i)
    constraints += std::to_string(i) + ",";
  int64_t number = count + static_cast<int64_t>(operands.size());
  auto list = [](int64_t first, int64_t n) {
    std::string all = "{";
    for (int64_t i = 0; i < n; ++i)
      all.append(i ? ", $" : "$").append(std::to_string(first + i));
    return all.append("}");
  };
  const int64_t firstFactor = number;
  for (const Values &factor : factors)
    for (Value part : factor) {
      operands.push_back(part);
      constraints += "r,";
      ++number;
    }
  const std::string type = element.isBF16() ? "bf16" : "f16";
  for (int64_t s = 0; s < static_cast<int64_t>(factors.size()); ++s)
    for (int64_t r = 0; r < results; ++r) {
      operands.push_back(matrices[r][s]);
      constraints += "l,";
      text += (Twine("wgmma.mma_async.sync.aligned.m64n64k16.f32.") + type + "." + type + " " + list(r * kSums, kSums) +
               ", " + list(firstFactor + 4 * s, 4) + ", $" + Twine(number++) + (begins && s == 0 ? ", 0" : ", 1") +
               ", 1, 1, " + (byRows ? "1" : "0") + ";\n")
                  .str();
    }
  text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;";
  auto structure = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, f32));
  auto done = LLVM::InlineAsmOp::create(b, TypeRange(structure), operands, text, constraints + "~{memory}", true, false,
                                        LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
  Values found;
  for (int64_t i = 0; i < count; ++i)
    found.push_back(LLVM::ExtractValueOp::create(b, done.getRes(), ArrayRef<int64_t>{i}));
  return found;
}

/// Two numbers of FP32 in the operands' type, in one register.
Value WarpgroupMaker::packed(Value low, Value high) {
  Value pair = vector::FromElementsOp::create(b, VectorType::get({2}, f32), ValueRange{low, high});
  pair = arith::TruncFOp::create(b, VectorType::get({2}, element), pair);
  pair = vector::BitCastOp::create(b, VectorType::get({1}, b.getI32Type()), pair);
  return vector::ExtractOp::create(b, pair, 0);
}

/// The thread's share of the 64 queries, 16 of their depth after the other, as products take it.
AttentionKernel::Values WarpgroupMaker::readQueries(Value slot) {
  Values found;
  Value pairs = opaque(quad), row = opaque(ownRow);
  const int64_t steps = paddedDepth(tile.depth) / kStep;
  for (int64_t s = 0; s < steps; ++s)
    for (int64_t part = 0; part < 4; ++part) {
      Value column = math.add(math.mul(pairs, math.number(2)), math.number(s * kStep + part / 2 * 8));
      Value at = math.add(slot, swizzled(math.add(row, math.number(part % 2 * 8)), column));
      auto type = VectorType::get({2}, b.getF16Type());
      Value pair = vector::LoadOp::create(b, type, ring, ValueRange{at}, false, llvm::MaybeAlign(4));
      pair = vector::BitCastOp::create(b, VectorType::get({1}, b.getI32Type()), pair);
      found.push_back(vector::ExtractOp::create(b, pair, 0));
    }
  return found;
}

/// Queries times the keys in `slot`: 64 x 64.
AttentionKernel::Values WarpgroupMaker::scores(ValueRange operand, Value slot) {
  Value from = descriptor(slot);
  SmallVector<Values> factors;
  Values matrices;
  for (int64_t s = 0; s * 4 < static_cast<int64_t>(operand.size()); ++s) {
    factors.emplace_back(operand.slice(s * 4, 4));
    const int64_t along = s * kStep / kLine * kPlaneUnits + s * kStep % kLine / kStep * kStepUnits;
    Value offset = arith::ConstantOp::create(b, b.getI64IntegerAttr(along));
    matrices.push_back(arith::AddIOp::create(b, from, offset));
  }
  return multiply({}, 1, factors, {matrices}, false);
}

/// sums + weights times the values in `slot`, 64 of their depth after the other.
AttentionKernel::Values WarpgroupMaker::accumulate(ValueRange sums, ValueRange weights, Value slot) {
  Value from = descriptor(slot);
  SmallVector<Values> factors, matrices(valueWide);
  for (int64_t s = 0; s < kRows / kStep; ++s) {
    factors.emplace_back(weights.slice(s * 4, 4));
    for (int64_t r = 0; r < valueWide; ++r) {
      Value offset = arith::ConstantOp::create(b, b.getI64IntegerAttr(r * kPlaneUnits + s * kStep * kLineUnits));
      matrices[r].push_back(arith::AddIOp::create(b, from, offset));
    }
  }
  return multiply(sums, valueWide, factors, matrices, true);
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// Four neighbouring keys of every 16, of one of the thread's two rows.
AttentionKernel::Place WarpgroupMaker::placeIn(Value chunkStart, int64_t group, int64_t half) {
  Place place;
  place.row = rowOf(half);
  place.column = math.add(math.mul(quad, math.number(4)), math.number(group * 16));
  place.query = math.add(firstRow, place.row);
  place.key = math.add(chunkStart, place.column);
  return place;
}

/// Number i of a piece, in the products that `scores` makes.
int64_t productOf(int64_t group, int64_t half, int64_t i) { return (2 * group + i / 2) * 4 + 2 * half + i % 2; }

Value WarpgroupMaker::isSeen(Value chunkStart, int64_t group, int64_t half, int64_t i) {
  Value left = math.sub(seen[half], math.add(chunkStart, math.mul(quad, math.number(4))));
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, math.number(group * 16 + i), left);
}

/// Once through the keys: the statistics of the thread's rows, to memory too. A thread adds exponentials in the order
/// of its keys, a chunk after the other; then four threads of a row meet.
void WarpgroupMaker::makeStatistics(Value chunks, ValueRange operand) {
  Value lowest = real(-INFINITY), one = math.number(1), two = math.number(2);
  Values found = overChunks(
      math.number(0), chunks, {lowest, real(0), lowest, real(0)}, [&](Value c, ValueRange carried) -> Values {
        awaitItem();
        Value ahead = math.add(c, two), slot = slotOf(ahead);
        // Behind the last chunk of keys the second pass begins: keys and values of chunk 0.
        whenever(
            math.below(chunks, ahead), [&] { loadValues(math.number(0), slot); },
            [&] { loadKeys(math.choose(math.below(ahead, chunks), ahead, math.number(0)), slot); });
        NVVM::CpAsyncCommitGroupOp::create(b);
        Values products = scores(operand, slotOf(c)), next;
        Value start = math.mul(c, math.number(kRows));
        for (int64_t half = 0; half < 2; ++half) {
          Values values;
          Value top = carried[2 * half];
          for (int64_t group = 0; group < kRows / 16; ++group) {
            Place place = placeIn(start, group, half);
            for (int64_t i = 0; i < kPiece; ++i) {
              Value valid = isSeen(start, group, half, i);
              Value x = score(products[productOf(group, half, i)], place, i, valid);
              values.push_back(math.choose(valid, x, lowest));
              Value larger = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, values.back(), top);
              top = math.choose(larger, values.back(), top);
            }
          }
          Value level = finite(top);
          auto below = [&](Value x) -> Value { return math::ExpOp::create(b, arith::SubFOp::create(b, x, level)); };
          Value sum = arith::MulFOp::create(b, carried[2 * half + 1], below(carried[2 * half]));
          for (Value value : values)
            sum = arith::AddFOp::create(b, sum, below(value));
          next.append({top, sum});
        }
        return next;
      });
  for (int64_t half = 0; half < 2; ++half) {
    Value result = joinedStatistics(found[2 * half], found[2 * half + 1], 4);
    leaveStatistics(result, math.add(firstRow, rowOf(half)), math.below(quad, one));
    levels[half] = finite(result);
  }
}

/// Which of the thread's probabilities of a chunk dropout keeps, a bit each: drawn before there are scores, as both
/// at once take too many registers. For the same reason the keys of Philox's rounds are made again for each chunk.
Value WarpgroupMaker::keptBits(Value start) {
  Value before[2] = {randomKey[0], randomKey[1]}, bits = number32(0);
  for (Value &part : randomKey)
    part = opaque(part);
  for (int64_t group = 0; group < kRows / 16; ++group)
    for (int64_t half = 0; half < 2; ++half)
      for (auto [i, keeps] : llvm::enumerate(kept(placeIn(start, group, half)))) {
        Value bit = number32(int64_t(1) << ((group * 2 + half) * kPiece + static_cast<int64_t>(i)));
        bits = arith::OrIOp::create(b, bits, math.choose(keeps, bit, number32(0)));
      }
  std::copy(before, before + 2, randomKey);
  return opaque(bits);
}

/// Probabilities of a chunk, as the product with values takes them.
AttentionKernel::Values WarpgroupMaker::probabilities(ValueRange products, Value start, Value keeps) {
  Values weights;
  for (int64_t group = 0; group < kRows / 16; ++group) {
    Value pairs[2][2]; // of the halves of a row of 16, and of rows
    for (int64_t half = 0; half < 2; ++half) {
      Place place = placeIn(start, group, half);
      Values values;
      for (int64_t i = 0; i < kPiece; ++i) {
        Value valid = isSeen(start, group, half, i), keep;
        Value x = score(products[productOf(group, half, i)], place, i, valid);
        if (keeps) {
          Value bit = number32(int64_t(1) << ((group * 2 + half) * kPiece + i));
          keep = arith::CmpIOp::create(b, arith::CmpIPredicate::ne, arith::AndIOp::create(b, keeps, bit), number32(0));
        }
        values.push_back(dropped(probability(x, levels[half], valid), keep));
      }
      for (int64_t pair = 0; pair < 2; ++pair)
        pairs[pair][half] = packed(values[2 * pair], values[2 * pair + 1]);
    }
    weights.append({pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]});
  }
  return weights;
}

/// Writes the result by way of the ring's first buffer, so that neighbours are written by neighbours. No product reads
/// it any more: with three items a chunk, the last keys and values lie in the others.
void WarpgroupMaker::leave(ValueRange sums) {
  Value pairs = opaque(quad), ownLine = opaque(ownRow), own = opaque(thread), stride = opaque(word(O + 2));
  for (int64_t r = 0; r < valueWide; ++r)
    for (int64_t eight = 0; eight < kLine / 8; ++eight)
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t first = r * kSums + eight * 4 + half * 2;
        Value pair = vector::FromElementsOp::create(b, VectorType::get({1}, b.getI32Type()),
                                                    ValueRange{packed(sums[first], sums[first + 1])});
        pair = vector::BitCastOp::create(b, VectorType::get({2}, b.getF16Type()), pair);
        Value column = math.add(math.mul(pairs, math.number(2)), math.number(r * kLine + eight * 8));
        Value line = math.add(ownLine, math.number(half * 8));
        vector::StoreOp::create(b, pair, ring, ValueRange{swizzled(line, column)}, false, llvm::MaybeAlign(4));
      }
  gpu::BarrierOp::create(b);
  const int64_t across = valueWide * kLine / kVector, step = threads / across;
  Value x = math.mul(math.rem(own, math.number(across)), math.number(kVector));
  Value y = math.div(own, math.number(across)), start = base(O, head);
  for (int64_t i = 0; i < kRows; i += step) {
    Value line = math.add(y, math.number(i)), row = math.add(firstRow, line);
    whenever(math.both(math.below(row, queries), math.below(x, word(ValueDepth))), [&] {
      Value value = vector::LoadOp::create(b, VectorType::get({kVector}, b.getF16Type()), ring,
                                           ValueRange{swizzled(line, x)}, false, llvm::MaybeAlign(16));
      if (element.isBF16())
        value = arith::BitcastOp::create(b, VectorType::get({kVector}, element), value);
      Value address = math.add(start, math.add(math.mul(row, stride), x));
      vector::StoreOp::create(b, value, o, ValueRange{address}, false, llvm::MaybeAlign(16));
    });
  }
  gpu::BarrierOp::create(b);
}

/// Items of the ring: keys of all chunks for the statistics, then keys and values of a chunk after the other. The
/// queries begin in the buffer that the third item takes.
void WarpgroupMaker::makeTile() {
  Value chunks = chunksOfKeys(kRows), zero = math.number(0), one = math.number(1), two = math.number(2);
  Value queriesSlot = math.number(2 * slotSize);
  load(q, Q, head, firstRow, queries, wide, false, queriesSlot);
  NVVM::CpAsyncCommitGroupOp::create(b);
  loadKeys(zero, slotOf(zero));
  NVVM::CpAsyncCommitGroupOp::create(b);
  loadKeys(math.choose(math.below(one, chunks), one, zero), slotOf(one));
  NVVM::CpAsyncCommitGroupOp::create(b);
  NVVM::CpAsyncWaitGroupOp::create(b, 2u);
  gpu::BarrierOp::create(b);
  Values operand = readQueries(queriesSlot);
  for (int64_t half = 0; half < 2; ++half) {
    Value query = math.add(firstRow, rowOf(half)), behind = math.add(query, one);
    Value limit = math.choose(math.both(causal, math.below(behind, keys)), behind, keys);
    seen[half] = math.choose(math.below(query, queries), limit, zero);
  }
  makeStatistics(chunks, operand);
  Values none(valueWide * kSums, real(0));
  Values sums = overChunks(zero, chunks, none, [&](Value c, ValueRange carried) -> Values {
    Value item = math.add(chunks, math.mul(c, two)), next = math.add(c, one), goesOn = math.below(next, chunks);
    Value start = math.mul(c, math.number(kRows)), keeps = tile.drops ? keptBits(start) : Value();
    awaitItem();
    whenever(goesOn, [&] { loadKeys(next, slotOf(math.add(item, two))); });
    NVVM::CpAsyncCommitGroupOp::create(b);
    Values weights = probabilities(scores(operand, slotOf(item)), start, keeps);
    awaitItem();
    whenever(goesOn, [&] { loadValues(next, slotOf(math.add(item, math.number(3)))); });
    NVVM::CpAsyncCommitGroupOp::create(b);
    return accumulate(carried, weights, slotOf(math.add(item, one)));
  });
  leave(sums);
}

func::FuncOp WarpgroupMaker::make() {
  makeFunction();
  // Three blocks share a multiprocessor's registers.
  function->setAttr("nvvm.minctasm", b.getI32IntegerAttr(3));
  thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x);
  int64_t bytes = 0;
  ring = sharedMemory(b, {kSlots * slotSize}, b.getF16Type(), bytes, 1024, "mpt_ring_");
  ringAddress = memref::ExtractAlignedPointerAsIndexOp::create(b, ring);
  Value lane = math.rem(thread, math.number(32));
  quad = math.rem(lane, math.number(4));
  ownRow = math.add(math.mul(math.div(thread, math.number(32)), math.number(16)), math.div(lane, math.number(4)));
  readWords();
  auto tiles = scf::ForOp::create(b, block, word(Tiles), math.number(gridBlocks));
  func::ReturnOp::create(b);
  b.setInsertionPointToStart(tiles.getBody());
  findTile(tiles.getInductionVar());
  makeTile();
  return function;
}

} // namespace

func::FuncOp mpt::cuda::makeWarpgroupAttention(OpBuilder &builder, Location loc, const Tile &tile, bool isLarge) {
  return WarpgroupMaker(builder, loc, tile, isLarge).make();
}
