// SPDX-License-Identifier: Apache-2.0
// GEMMs: operands in the layouts that the runtime takes, results where they are wanted.
#include "Bufferizer.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

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

} // namespace

/// An 8-bit tensor as FP16, which holds every value of it, dense in `order`.
FailureOr<Value> Bufferizer::widened(Location loc, Value memref, const Order &order) {
  ArrayRef<int64_t> shape = typeOf(memref).getShape();
  Value wide = allocate(loc, bufferType(shape, builder.getF16Type(), denseStrides(shape, order)));
  if (failed(launchCopy(loc, memref, wide)))
    return failure();
  return wide;
}

/// An 8-bit operand as products of a device take it: with the depth innermost where they take the type at all, else
/// wide.
FailureOr<Value> Bufferizer::float8Operand(Location loc, Value memref, bool depthLast, bool native) {
  MemRefType type = typeOf(memref);
  Order order = rowMajor(type.getRank());
  if (!depthLast)
    std::swap(order[order.size() - 1], order[order.size() - 2]);
  if (native)
    return stridesOf(type)[order.back()] == 1 ? memref : dense(loc, memref, order);
  return widened(loc, memref, rowMajor(type.getRank()));
}

Value Bufferizer::denseResult(Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  Target place = targetFor(tensor);
  Value memref = place.memref;
  if (!memref || place.state || !isDense(typeOf(memref), rowMajor(type.getRank())))
    memref = allocate(tensor.getLoc(), denseType(type, rowMajor(type.getRank())));
  buffers[tensor] = memref;
  return memref;
}

FailureOr<std::pair<Value, Value>> Bufferizer::gemmOperands(library::GemmOp gemm) {
  Location loc = gemm.getLoc();
  Value operands[2] = {buffer(gemm.getA()), buffer(gemm.getB())};
  bool transposed[2] = {gemm.getTransposeA(), gemm.getTransposeB()};
  bool native = options.nativeFloat8 && library::GemmOp::takesFloat8(tensorType(gemm.getA()), tensorType(gemm.getB()));
  for (int i = 0; i < 2; ++i) {
    FailureOr<Value> found = operands[i];
    if (options.device && typeOf(operands[i]).getElementTypeBitWidth() == 8)
      found = float8Operand(loc, operands[i], (i == 0) != transposed[i], native);
    if (failed(found))
      return failure();
    operands[i] = *found;
  }
  for (auto [memref, flag] : llvm::zip_equal(operands, transposed)) {
    if (Matrices(typeOf(memref), flag).hasUnitStride())
      continue;
    FailureOr<Value> copied = dense(loc, memref, rowMajor(typeOf(memref).getRank()));
    if (failed(copied))
      return failure();
    memref = *copied;
  }
  return std::make_pair(operands[0], operands[1]);
}

Value Bufferizer::gemmResult(library::GemmOp gemm, bool &flipped) {
  flipped = false;
  // What calls exchange through memory is dense; anything else is written where it is wanted.
  library::EpilogueAttr form = gemm.getForm();
  if (form.getKeep() || gemm.getAux() || form.getActivation() == library::Activation::gelu_tanh)
    return denseResult(gemm.getD());
  Value result = targetFor(gemm.getD()).memref;
  if (result && Matrices(typeOf(result), false).hasUnitColumns())
    return result;
  // Where the columns lie one after the other, the transposes are multiplied.
  flipped = result && options.device && !gemm.getBias() && Matrices(typeOf(result), true).hasUnitColumns();
  if (flipped)
    return result;
  return allocate(gemm.getLoc(), denseType(cast<RankedTensorType>(gemm.getD().getType()), orders.of(gemm.getD())));
}

LogicalResult Bufferizer::lowerGemm(library::GemmOp gemm) {
  Location loc = gemm.getLoc();
  auto found = gemmOperands(gemm);
  if (failed(found))
    return failure();
  auto [left, right] = *found;
  bool transposed[2] = {gemm.getTransposeA(), gemm.getTransposeB()}, flipped;
  auto resultType = cast<RankedTensorType>(gemm.getD().getType());
  Value result = gemmResult(gemm, flipped), aux;
  if (gemm.getKept())
    aux = denseResult(gemm.getKept());
  if (gemm.getAux()) {
    FailureOr<Value> given = dense(loc, buffer(gemm.getAux()), rowMajor(resultType.getRank()));
    if (failed(given))
      return failure();
    aux = *given;
  }

  Matrices a(typeOf(left), transposed[0]), b(typeOf(right), transposed[1]), d(typeOf(result), false);
  if (mergeBatches(a, b, d) > 2) {
    // Row-major batches always merge into one.
    for (Value *memref : {&left, &right}) {
      FailureOr<Value> copied = dense(loc, *memref, rowMajor(typeOf(*memref).getRank()));
      if (failed(copied))
        return failure();
      *memref = *copied;
    }
    result = allocate(loc, denseType(resultType, rowMajor(resultType.getRank())));
    a = Matrices(typeOf(left), transposed[0]);
    b = Matrices(typeOf(right), transposed[1]);
    d = Matrices(typeOf(result), false);
    mergeBatches(a, b, d);
    flipped = false;
  }
  SmallVector<Value> scales = llvm::map_to_vector(gemm.getOperandScales(), [&](Value scale) { return buffer(scale); });
  if (flipped) {
    for (Matrices *m : {&a, &b, &d}) {
      std::swap(m->rows, m->cols);
      std::swap(m->rowStride, m->colStride);
    }
    std::swap(a, b);
    std::swap(left, right);
    std::reverse(scales.begin(), scales.end());
  }
  library::EpilogueAttr epilogue = gemm.getEpilogueAttr();
  if (flipped && epilogue)
    epilogue = epilogue.transposed();
  auto shown = [&](Value memref, const Matrices &m) {
    Sizes shape(m.batch), strides(m.batchStrides);
    shape.append({m.rows, m.cols});
    strides.append({m.rowStride, m.colStride});
    return view(loc, memref, shape, strides);
  };
  Value bias, scale = gemm.getScale() ? buffer(gemm.getScale()) : Value();
  if (gemm.getBias()) {
    FailureOr<Value> vector = dense(loc, buffer(gemm.getBias()), rowMajor(1));
    if (failed(vector))
      return failure();
    bias = *vector;
  }
  Value sums = gemm.getSums() ? denseResult(gemm.getSums()) : Value();
  rt::GemmOp::create(builder, loc, shown(left, a), shown(right, b), bias, scales, scale, aux, sums, shown(result, d),
                     epilogue, gemm.getAlpha());
  buffers[gemm.getD()] = result;
  return success();
}
