// SPDX-License-Identifier: Apache-2.0
// Matrix products and convolutions: operands in the layouts that the runtime takes, results where they are wanted.
#include "Bufferizer.h"

#include "mpt/Memory/Descriptors.h"

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

Value Bufferizer::chained(Location loc, Value tensor, ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(tensor.getType());
  Target place = targetFor(tensor);
  Value memref = place.memref;
  if (!memref || place.state || !isDense(typeOf(memref), rowMajor(type.getRank())))
    memref = allocate(loc, denseType(type, rowMajor(type.getRank())));
  buffers[tensor] = memref;
  return view(loc, memref, shape, denseStrides(shape, rowMajor(shape.size())));
}

LogicalResult Bufferizer::lowerMatMul(MatMulOp matmul) {
  Location loc = matmul.getLoc();
  Epilogue epilogue = epilogues.lookup(matmul);
  Value operands[2] = {buffer(matmul.getA()), buffer(matmul.getB())};
  bool transposed[2] = {matmul.getTransposeA(), matmul.getTransposeB()};
  auto makeDense = [&](Value &memref) {
    FailureOr<Value> copied = dense(loc, memref, rowMajor(typeOf(memref).getRank()));
    if (failed(copied))
      return failure();
    memref = *copied;
    return success();
  };
  if (options.device) {
    bool native = options.nativeFloat8 && isNativeFloat8(matmul);
    for (int i = 0; i < 2; ++i) {
      if (typeOf(operands[i]).getElementTypeBitWidth() != 8)
        continue;
      FailureOr<Value> found = float8Operand(loc, operands[i], (i == 0) != transposed[i], native);
      if (failed(found))
        return failure();
      operands[i] = *found;
    }
  }
  for (auto [memref, flag] : llvm::zip_equal(operands, transposed))
    if (!Matrices(typeOf(memref), flag).hasUnitStride() && failed(makeDense(memref)))
      return failure();

  auto resultType = cast<RankedTensorType>(matmul.getY().getType());
  Value result, aux, sums;
  if (FusionOp activation = epilogue.activation) {
    result = chained(loc, activation.getOutputs()[0], resultType.getShape());
    if (activation.getNumResults() > 1) {
      aux = chained(loc, activation.getOutputs()[1], resultType.getShape());
    } else if (epilogue.flags & MPT_GEMM_GELU_TANH_GRADIENT) {
      Value given = activation.getInputs()[1];
      FailureOr<Value> found = dense(loc, buffer(given), rowMajor(cast<RankedTensorType>(given.getType()).getRank()));
      if (failed(found))
        return failure();
      aux =
          view(loc, *found, resultType.getShape(), denseStrides(resultType.getShape(), rowMajor(resultType.getRank())));
    }
  } else {
    result = targetFor(matmul.getY()).memref;
  }
  // Where the columns lie one after the other, the product of the transposes is written.
  bool flipped = false;
  if (result && !Matrices(typeOf(result), false).hasUnitColumns()) {
    flipped = options.device && !epilogues.lookup(matmul).bias && Matrices(typeOf(result), true).hasUnitColumns();
    if (!flipped)
      result = nullptr;
  }
  if (!result)
    result = allocate(loc, denseType(resultType, orders.of(matmul.getY())));

  Matrices a(typeOf(operands[0]), transposed[0]), b(typeOf(operands[1]), transposed[1]), d(typeOf(result), false);
  if (mergeBatches(a, b, d) > 2) {
    // Row-major batches always merge into one.
    for (Value &memref : operands)
      if (failed(makeDense(memref)))
        return failure();
    result = allocate(loc, denseType(resultType, rowMajor(resultType.getRank())));
    a = Matrices(typeOf(operands[0]), transposed[0]);
    b = Matrices(typeOf(operands[1]), transposed[1]);
    d = Matrices(typeOf(result), false);
    mergeBatches(a, b, d);
    flipped = false;
  }
  if (flipped) {
    for (Matrices *m : {&a, &b, &d}) {
      std::swap(m->rows, m->cols);
      std::swap(m->rowStride, m->colStride);
    }
    std::swap(a, b);
    std::swap(operands[0], operands[1]);
    if (epilogue.sums)
      epilogue.flags ^= MPT_GEMM_SUM_A | MPT_GEMM_SUM_B;
  }
  if (FusionOp fusion = epilogue.sums)
    sums = chained(loc, fusion.getOutputs()[0], cast<RankedTensorType>(fusion.getOutputs()[0].getType()).getShape());
  auto shown = [&](Value memref, const Matrices &m) {
    Sizes shape(m.batch), strides(m.batchStrides);
    shape.append({m.rows, m.cols});
    strides.append({m.rowStride, m.colStride});
    return view(loc, memref, shape, strides);
  };
  Value bias;
  if (epilogue.bias) {
    FailureOr<Value> vector = dense(loc, buffer(epilogue.bias), rowMajor(1));
    if (failed(vector))
      return failure();
    bias = *vector;
    epilogue.flags |= MPT_GEMM_BIAS;
  } else if (epilogue.scale) {
    bias = buffer(epilogue.scale);
    epilogue.flags |= MPT_GEMM_SCALE;
  }
  SmallVector<Value> scales;
  for (int i = 0; i < 2; ++i)
    if (Value scale = epilogue.operandScales[flipped ? 1 - i : i])
      scales.push_back(buffer(scale));
  rt::GemmOp::create(builder, loc, shown(operands[0], a), shown(operands[1], b), bias, scales, aux, sums,
                     shown(result, d), epilogue.flags, APFloat(epilogue.alpha));
  buffers[matmul.getY()] = result;
  return success();
}

LogicalResult Bufferizer::lowerConv(Operation *op, int64_t kind, Value x, Value w, Value y) {
  Location loc = op->getLoc();
  Value tensors[3] = {x, w, y}, memrefs[3];
  for (auto [tensor, memref] : llvm::zip_equal(tensors, memrefs)) {
    int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
    Order order = tensor == w && !options.device ? rowMajor(rank) : channelsLast(rank);
    if (tensor.getDefiningOp() == op) {
      memref = targetFor(tensor).memref;
      if (!memref || !isDense(typeOf(memref), order))
        memref = allocate(loc, denseType(cast<RankedTensorType>(tensor.getType()), order));
      buffers[tensor] = memref;
      continue;
    }
    Value given = buffer(tensor);
    bool wide = options.device && typeOf(given).getElementTypeBitWidth() == 8; // no device convolves these
    FailureOr<Value> found = wide ? widened(loc, given, order) : dense(loc, given, order);
    if (failed(found))
      return failure();
    memref = *found;
    if (wide)
      continue;
    // An input that had to be rearranged is read in its new layout from here on; a device's filters are small.
    if (isa<BlockArgument>(tensor) || (options.device && tensor == w && tensor.getDefiningOp<train::ReadOp>()))
      buffers[tensor] = memref;
  }
  Value sums;
  SmallVector<Value> norm;
  if (rt::ChannelSumsOp left = gathered.lookup(op)) {
    int64_t channels = typeOf(memrefs[kind == MPT_CONV_FORWARD ? 2 : 0]).getDimSize(1);
    for (Value part : left.getNorm()) {
      int64_t rank = typeOf(buffer(part)).getRank();
      FailureOr<Value> found = dense(loc, buffer(part), rank == 1 ? rowMajor(1) : channelsLast(rank));
      if (failed(found))
        return failure();
      norm.push_back(*found);
    }
    sums = allocate(loc, MemRefType::get({2, channels}, builder.getF32Type()));
    for (auto [i, sum] : llvm::enumerate(left->getResults()))
      buffers[sum] = view(loc, sums, {channels}, {1}, static_cast<int64_t>(i) * channels);
  }
  auto attribute = [&](StringRef name) { return op->getAttrOfType<DenseI64ArrayAttr>(name); };
  auto conv = rt::ConvOp::create(builder, loc, kind, memrefs[0], memrefs[1], memrefs[2], Value(), Value(), sums, norm,
                                 attribute("strides"), attribute("dilations"), attribute("pads_low"),
                                 attribute("pads_high"), op->getAttrOfType<IntegerAttr>("groups").getInt(), 0);
  if (int64_t bytes = options.device ? 0 : describe(conv, options.nativeBf16).workspace_bytes) {
    builder.setInsertionPoint(conv);
    conv.getWorkspaceMutable().assign(allocate(loc, MemRefType::get({bytes}, builder.getI8Type())));
    builder.setInsertionPointAfter(conv);
  }
  return success();
}
