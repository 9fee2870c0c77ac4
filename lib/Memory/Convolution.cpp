// SPDX-License-Identifier: Apache-2.0
// Convolutions: channels-last operands, results where they are wanted, scratch of the runtime.
#include "Bufferizer.h"

#include "mpt/Dialect/RT/AbiWords.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

LogicalResult Bufferizer::lowerConv(Operation *op, rt::ConvKind kind, Value x, Value w, Value y) {
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
    int64_t channels = typeOf(memrefs[kind == rt::ConvKind::forward ? 2 : 0]).getDimSize(1);
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
  auto conv = rt::ConvOp::create(builder, loc, kind, memrefs[0], memrefs[1], memrefs[2], Value(), sums, norm,
                                 attribute("strides"), attribute("dilations"), attribute("pads_low"),
                                 attribute("pads_high"), op->getAttrOfType<IntegerAttr>("groups").getInt());
  if (int64_t bytes = options.device ? 0 : rt::describe(conv, options.nativeBf16).workspace_bytes) {
    builder.setInsertionPoint(conv);
    conv.getWorkspaceMutable().assign(allocate(loc, MemRefType::get({bytes}, builder.getI8Type())));
    builder.setInsertionPointAfter(conv);
  }
  return success();
}
