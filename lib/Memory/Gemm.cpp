// SPDX-License-Identifier: Apache-2.0
// GEMMs: operands in the layouts that the runtime takes, results where they are wanted.
#include "GemmExtents.h"
#include "Models.h"
#include "RowPadding.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// A stack of matrices in memory.
struct Matrices {
  Sizes batch, batchStrides;
  int64_t rows, cols, rowStride, colStride;

  Matrices(MemRefType type, bool transposed) {
    Sizes strides = stridesOf(type);
    int64_t rank = type.getRank(), r = transposed ? rank - 1 : rank - 2, c = transposed ? rank - 2 : rank - 1;
    batch.assign(type.getShape().begin(), type.getShape().end() - 2);
    batchStrides.assign(strides.begin(), strides.end() - 2);
    rows = type.getDimSize(r);
    cols = type.getDimSize(c);
    rowStride = strides[r];
    colStride = strides[c];
  }
  bool hasUnitStride() const {
    bool repeated = (rows > 1 && rowStride == 0) || (cols > 1 && colStride == 0);
    return !repeated && (rowStride == 1 || colStride == 1 || rows == 1 || cols == 1);
  }
  bool hasUnitColumns() const { return colStride == 1 || cols == 1; }
  void transpose() {
    std::swap(rows, cols);
    std::swap(rowStride, colStride);
  }
};

/// Drops batch extents of 1 and merges neighbours that are one run in all three operands. Returns the number left.
size_t mergeBatches(Matrices &a, Matrices &b, Matrices &d) {
  Matrices *all[] = {&a, &b, &d};
  for (size_t i = d.batch.size(); i-- > 0;) {
    bool unit = d.batch[i] == 1;
    bool run = i + 1 < d.batch.size() && llvm::all_of(all, [&](Matrices *m) {
                 return m->batchStrides[i] == m->batchStrides[i + 1] * d.batch[i + 1];
               });
    if (!unit && !run)
      continue;
    for (Matrices *m : all) {
      if (!unit) {
        m->batch[i + 1] *= m->batch[i];
      }
      m->batch.erase(m->batch.begin() + i);
      m->batchStrides.erase(m->batchStrides.begin() + i);
    }
  }
  return d.batch.size();
}

/// An 8-bit operand as calls take it: with the depth innermost.
Value float8Operand(Location loc, Value memref, bool depthLast, BufferizationState &state) {
  MemRefType type = bufferTypeOf(memref);
  Order order = rowMajor(type.getRank());
  if (!depthLast)
    std::swap(order[order.size() - 1], order[order.size() - 2]);
  return stridesOf(type)[order.back()] == 1 ? memref : state.dense(loc, memref, order);
}

/// Row-major copies of `memrefs` where they are not that themselves.
void makeDense(Location loc, ArrayRef<Value *> memrefs, BufferizationState &state) {
  for (Value *memref : memrefs)
    *memref = state.dense(loc, *memref, rowMajor(bufferTypeOf(*memref).getRank()));
}

/// `memref`, or a copy of it whose rows begin at aligned addresses: states lie as their checkpoints do, arguments as
/// their callers have them. `rows` are the other operand's, which each element is multiplied with.
Value alignedOperand(Location loc, Value memref, int64_t rows, BufferizationState &state) {
  MemRefType type = bufferTypeOf(memref);
  const int64_t alignment = state.policy.alignment;
  if (type.getRank() != 2 || rows < state.policy.rowsWorthAligning || spanBytes(type) < state.policy.bytesWorthAligning)
    return memref;
  Sizes shape(type.getShape()), strides = stridesOf(type);
  const bool byColumns = strides[1] != 1;
  auto turn = [&](Sizes &pair) {
    if (byColumns)
      std::swap(pair[0], pair[1]);
  };
  turn(shape);
  turn(strides);
  const bool isAligned =
      strides[0] * elementBytes(type.getElementType()) % alignment == 0 && state.alignmentOf(memref) == alignment;
  if (strides[1] != 1 || shape[0] <= 1 || shape[1] <= 1 || isAligned)
    return memref;
  MemRefType dense = bufferType(shape, type.getElementType(), denseStrides(shape, rowMajor(2)));
  Value copy = state.allocate(loc, withAlignedRows(dense, alignment));
  state.convert(loc, state.view(loc, memref, shape, strides), copy);
  Sizes padded = stridesOf(bufferTypeOf(copy));
  turn(padded);
  return state.view(loc, copy, type.getShape(), padded);
}

/// A dense row-major buffer for `tensor`, a result of a library call: its place if that is one.
Value denseResult(Value tensor, BufferizationState &state) {
  Order order = rowMajor(tensorType(tensor).getRank());
  Value memref = state.placeFor(tensor);
  if (!memref || isInState(memref) || !isDense(bufferTypeOf(memref), order))
    memref = state.allocate(tensor.getLoc(), state.ownType(tensor, order));
  state.setBuffer(tensor, memref);
  return memref;
}

/// A GEMM's matrices as the call gets them.
struct Call {
  Value left, right, result;
  bool flipped = false; ///< the transposes are multiplied in the other order
  bool isOwn = false;   ///< the result's buffer is new
};

/// Buffers of a and b in types and strides that the runtime takes.
LogicalResult findOperands(library::GemmOp gemm, Call &call, BufferizationState &state) {
  Location loc = gemm.getLoc();
  Value operands[2] = {state.buffer(gemm.getA()), state.buffer(gemm.getB())};
  bool transposed[2] = {gemm.getTransposeA(), gemm.getTransposeB()};
  using Float8 = BufferizationPolicy::Float8;
  bool native = state.policy.float8 != Float8::None &&
                library::GemmOp::takesFloat8(tensorType(gemm.getA()), tensorType(gemm.getB()));
  for (int i = 0; i < 2; ++i) {
    if (state.policy.float8 == Float8::Every || bufferTypeOf(operands[i]).getElementTypeBitWidth() != 8)
      continue;
    if (!native)
      return gemm.emitOpError() << "expected 8-bit operands that the library multiplies, got others: run "
                                   "fusion-widen-operands";
    operands[i] = float8Operand(loc, operands[i], (i == 0) != transposed[i], state);
  }
  for (auto [memref, flag] : llvm::zip_equal(operands, transposed))
    if (!Matrices(bufferTypeOf(memref), flag).hasUnitStride())
      makeDense(loc, {&memref}, state);
  ArrayRef<int64_t> product = tensorType(gemm.getD()).getShape();
  for (int i = 0; i < 2; ++i)
    operands[i] = alignedOperand(loc, operands[i], product[product.size() - 1 - i], state);
  call.left = operands[0];
  call.right = operands[1];
  return success();
}

/// Where the call writes its result, and whether it multiplies the transposes for that.
void findResult(library::GemmOp gemm, Call &call, BufferizationState &state) {
  if (gemm.exchangesDense()) {
    call.result = denseResult(gemm.getD(), state);
    return;
  }
  call.result = state.placeFor(gemm.getD());
  if (call.result && Matrices(bufferTypeOf(call.result), false).hasUnitColumns())
    return;
  // Where the columns lie one after the other, the transposes are multiplied.
  call.flipped = call.result && !gemm.getBias() &&
                 state.policy.gemmResults == BufferizationPolicy::GemmResults::RowsOrColumns &&
                 Matrices(bufferTypeOf(call.result), true).hasUnitColumns();
  if (!call.flipped) {
    call.result = state.allocate(gemm.getLoc(), state.ownType(gemm.getD()));
    call.isOwn = true;
  }
}

/// The tensor that the call exchanges with other calls: the operand of an activation, kept or read by its gradient.
Value findAux(library::GemmOp gemm, BufferizationState &state) {
  if (gemm.getKept())
    return denseResult(gemm.getKept(), state);
  if (gemm.getAux())
    return state.dense(gemm.getLoc(), state.buffer(gemm.getAux()), rowMajor(tensorType(gemm.getAux()).getRank()));
  return Value();
}

struct GemmBufferization : Bufferizable::ExternalModel<GemmBufferization, library::GemmOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::States; }

  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto gemm = cast<library::GemmOp>(op);
    Location loc = op->getLoc();
    Call call;
    if (failed(findOperands(gemm, call, state)))
      return failure();
    findResult(gemm, call, state);
    Value aux = findAux(gemm, state);
    bool transposed[2] = {gemm.getTransposeA(), gemm.getTransposeB()};
    auto matrices = [&] {
      return std::array<Matrices, 3>{Matrices(bufferTypeOf(call.left), transposed[0]),
                                     Matrices(bufferTypeOf(call.right), transposed[1]),
                                     Matrices(bufferTypeOf(call.result), false)};
    };
    std::array<Matrices, 3> all = matrices();
    auto &[a, b, d] = all;
    if (mergeBatches(a, b, d) > 2) {
      // Row-major batches always merge into one.
      makeDense(loc, {&call.left, &call.right}, state);
      call.result = state.allocate(loc, state.ownType(gemm.getD(), rowMajor(tensorType(gemm.getD()).getRank())));
      call.flipped = false;
      all = matrices();
      mergeBatches(a, b, d);
    }
    SmallVector<Value> scales =
        llvm::map_to_vector(gemm.getOperandScales(), [&](Value scale) { return state.buffer(scale); });
    library::EpilogueAttr epilogue = gemm.getEpilogueAttr();
    if (call.flipped) {
      for (Matrices *m : {&a, &b, &d})
        m->transpose();
      std::swap(a, b);
      std::swap(call.left, call.right);
      std::reverse(scales.begin(), scales.end());
      epilogue = epilogue ? epilogue.transposed() : epilogue;
    }
    Value bias = gemm.getBias() ? state.dense(loc, state.buffer(gemm.getBias()), rowMajor(1)) : Value();
    Value scale = gemm.getScale() ? state.buffer(gemm.getScale()) : Value();
    Value sums = gemm.getSums() ? denseResult(gemm.getSums(), state) : Value();
    if (!epilogue && !bias && !aux && !sums && scales.empty() && !scale && d.batch.empty()) {
      multiplyRounded(gemm, call, {a, b, d}, state);
      return success();
    }
    rt::GemmOp::create(state.builder, loc, shown(loc, call.left, a, state), shown(loc, call.right, b, state), bias,
                       scales, scale, aux, sums, shown(loc, call.result, d, state), epilogue, gemm.getAlpha(),
                       gemm.getReadAsAttr());
    state.setBuffer(gemm.getD(), call.result);
    return success();
  }

private:
  /// A plain product, over rounded extents where that is faster.
  static void multiplyRounded(library::GemmOp gemm, const Call &call, const std::array<Matrices, 3> &all,
                              BufferizationState &state) {
    Location loc = gemm.getLoc();
    auto matrix = [](Value memref, const Matrices &x) {
      return Matrix{memref, x.rows, x.cols, x.rowStride, x.colStride};
    };
    auto shown = [&](const Matrix &x) {
      return state.view(loc, x.memref, {x.rows, x.cols}, {x.rowStride, x.colStride});
    };
    GemmMatrices own{matrix(call.left, all[0]), matrix(call.right, all[1]), matrix(call.result, all[2])};
    // Who asked for a dense result gets one.
    const bool keepsPitch =
        own.d.cols * elementBytes(bufferTypeOf(call.result).getElementType()) % state.policy.extentBytes == 0;
    const bool isOwn = call.isOwn && keepsPitch && bufferTypeOf(call.result).getRank() == 2;
    roundExtents(loc, own, isOwn, state);
    rt::GemmOp::create(state.builder, loc, shown(own.a), shown(own.b), Value(), ValueRange(), Value(), Value(), Value(),
                       shown(own.d), library::EpilogueAttr(), gemm.getAlpha(), gemm.getReadAsAttr());
    const bool isReplaced = own.d.memref != call.result;
    own.d.rows = all[2].rows;
    own.d.cols = all[2].cols;
    if (!isReplaced || !isOwn) {
      state.setBuffer(gemm.getD(), call.result);
      if (isReplaced)
        state.convert(loc, shown(own.d), shown(matrix(call.result, all[2])));
      return;
    }
    state.setBuffer(gemm.getD(), shown(own.d));
    call.result.getDefiningOp()->erase();
  }

  static Value shown(Location loc, Value memref, const Matrices &m, BufferizationState &state) {
    Sizes shape(m.batch), strides(m.batchStrides);
    shape.append({m.rows, m.cols});
    strides.append({m.rowStride, m.colStride});
    return state.view(loc, memref, shape, strides);
  }
};

} // namespace

void mpt::memory::attachGemmModel(MLIRContext *context) {
  library::GemmOp::attachInterface<GemmBufferization>(*context);
}
