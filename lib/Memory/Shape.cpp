// SPDX-License-Identifier: Apache-2.0
// Data movement on buffers: views by strides, and concatenations whose parts are written in place.
#include "Models.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

struct ReshapeView : StridedView::ExternalModel<ReshapeView, ReshapeOp> {
  std::optional<Strided> viewOf(Operation *op, const Strided &source) const {
    return reshaped(source, tensorType(op->getResult(0)).getShape());
  }
  std::optional<Strided> sourceOf(Operation *op, const Strided &view) const {
    return reshaped(view, tensorType(op->getOperand(0)).getShape());
  }

private:
  static std::optional<Strided> reshaped(const Strided &from, ArrayRef<int64_t> shape) {
    std::optional<Sizes> strides = reshapeStrides(from.shape, from.strides, shape);
    return strides ? std::optional(Strided{Sizes(shape), *strides, 0}) : std::nullopt;
  }
};

struct TransposeView : StridedView::ExternalModel<TransposeView, TransposeOp> {
  std::optional<Strided> viewOf(Operation *op, const Strided &source) const {
    Strided view;
    for (int64_t d : cast<TransposeOp>(op).getPermutation()) {
      view.shape.push_back(source.shape[d]);
      view.strides.push_back(source.strides[d]);
    }
    return view;
  }
  std::optional<Strided> sourceOf(Operation *op, const Strided &view) const {
    Strided source = view;
    for (auto [i, d] : llvm::enumerate(cast<TransposeOp>(op).getPermutation())) {
      source.shape[d] = view.shape[i];
      source.strides[d] = view.strides[i];
    }
    source.offset = 0;
    return source;
  }
};

struct SliceView : StridedView::ExternalModel<SliceView, SliceOp> {
  std::optional<Strided> viewOf(Operation *op, const Strided &source) const {
    auto slice = cast<SliceOp>(op);
    Strided view{Sizes(tensorType(slice.getY()).getShape()), source.strides, 0};
    for (auto [i, stride] : llvm::enumerate(view.strides)) {
      view.offset += slice.getStarts()[i] * stride;
      if (!slice.getStrides().empty())
        stride *= slice.getStrides()[i];
    }
    return view;
  }
  /// A slice leaves gaps, which its source would have to fill.
  std::optional<Strided> sourceOf(Operation *, const Strided &) const { return std::nullopt; }
  bool showsAll(Operation *) const { return false; }
};

/// The operand's buffer under other strides; of a dense copy where no strides show it.
template <typename Op> struct ViewBufferization : Bufferizable::ExternalModel<ViewBufferization<Op>, Op> {
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto view = cast<StridedView>(op);
    Value from = state.buffer(op->getOperand(0));
    std::optional<Strided> shown = view.viewOf(stridedOf(from));
    if (!shown) {
      from = state.dense(op->getLoc(), from, rowMajor(bufferTypeOf(from).getRank()));
      shown = view.viewOf(stridedOf(from));
    }
    state.setBuffer(op->getResult(0), state.view(op->getLoc(), from, *shown));
    return success();
  }
};

// ---- concatenations

/// Elements before part `number` along the axis.
int64_t elementsBefore(ConcatOp concat, unsigned number) {
  int64_t count = 0;
  for (Value part : concat.getInputs().take_front(number))
    count += tensorType(part).getDimSize(concat.getAxis());
  return count;
}

/// The buffer that the parts of `concat` go to; the first part that asks has it made.
Value wholeOf(ConcatOp concat, Location loc, BufferizationState &state) {
  Value whole = state.buffer(concat.getY());
  if (!whole)
    whole = state.placeFor(concat.getY());
  if (!whole)
    whole = state.allocate(loc, state.ownType(concat.getY()));
  state.setBuffer(concat.getY(), whole);
  return whole;
}

struct ConcatPlaces : PlacesOperands::ExternalModel<ConcatPlaces, ConcatOp> {
  PlaceKind getPlaceKind(Operation *) const { return PlaceKind::Part; }
  Strided placeOf(Operation *op, unsigned operand, const Strided &whole) const {
    auto concat = cast<ConcatOp>(op);
    return {Sizes(tensorType(op->getOperand(operand)).getShape()), whole.strides,
            elementsBefore(concat, operand) * whole.strides[concat.getAxis()]};
  }
  Value bufferFor(Operation *op, unsigned operand, BufferizationState &state) const {
    SmallVector<Operation *> views;
    Location loc = makerOf(op->getOpOperand(operand), views).getLoc();
    return partOf(op, operand, wholeOf(cast<ConcatOp>(op), loc, state), loc, state);
  }

  static Value partOf(Operation *op, unsigned operand, Value whole, Location loc, BufferizationState &state) {
    Strided place = cast<PlacesOperands>(op).placeOf(operand, stridedOf(whole));
    MemRefType type = bufferType(place.shape, bufferTypeOf(whole).getElementType(), place.strides);
    return rt::ViewOp::create(state.builder, loc, type, whole, place.offset);
  }
};

struct ConcatBufferization : Bufferizable::ExternalModel<ConcatBufferization, ConcatOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::Outputs; }
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    Location loc = op->getLoc();
    Value whole = wholeOf(cast<ConcatOp>(op), loc, state);
    for (OpOperand &part : op->getOpOperands()) {
      // A maker that took this place has written the part already.
      Value place = ConcatPlaces::partOf(op, part.getOperandNumber(), whole, loc, state);
      if (sameMemory(state.buffer(part.get()), place))
        place.getDefiningOp()->erase();
      else
        state.copy(loc, state.buffer(part.get()), place);
    }
    return success();
  }
};

} // namespace

void mpt::memory::attachShapeModels(MLIRContext *context) {
  ReshapeOp::attachInterface<ReshapeView, ViewBufferization<ReshapeOp>>(*context);
  TransposeOp::attachInterface<TransposeView, ViewBufferization<TransposeOp>>(*context);
  SliceOp::attachInterface<SliceView, ViewBufferization<SliceOp>>(*context);
  ConcatOp::attachInterface<ConcatPlaces, ConcatBufferization>(*context);
}
