// SPDX-License-Identifier: Apache-2.0
// Resize family: resampling axis by axis, and its adjoint.
#include "Rules.h"
#include "mpt/Dialect/MPT/Accumulators.h"

using namespace mlir;
using namespace mpt;

namespace {

/// One axis of resize, or of its adjoint: to[.., i, ..] += weight from[.., position, ..] (adjoint: the other way
/// round).
template <typename Op, typename Round>
Tensor resample(Op op, size_t which, const Tensor &from, int64_t extent, bool adjoint, Round round) {
  int64_t axis = op.getAxes()[which], taps = op.getTaps()[which];
  ArrayRef<int64_t> positions = cast<DenseI64ArrayAttr>(op.getPositions()[which]).asArrayRef();
  ArrayRef<double> weights = cast<DenseF64ArrayAttr>(op.getWeights()[which]).asArrayRef();
  SmallVector<int64_t> shape(from.shape());
  shape[axis] = extent;
  Tensor to(from.getType().clone(shape));
  int64_t inner = ShapedType::getNumElements(ArrayRef<int64_t>(shape).drop_front(axis + 1)),
          outer = ShapedType::getNumElements(ArrayRef<int64_t>(shape).take_front(axis));
  int64_t fromExtent = from.shape()[axis];
  ArrayRef<double> in = from.reals();
  MutableArrayRef<double> out = to.writeReals();
  for (int64_t a = 0; a < outer; ++a)
    for (size_t j = 0; j < positions.size(); ++j)
      for (int64_t b = 0; b < inner; ++b) {
        int64_t i = static_cast<int64_t>(j) / taps, p = positions[j];
        double &sum = out[(a * extent + (adjoint ? p : i)) * inner + b];
        sum = round(sum + round(weights[j] * in[(a * fromExtent + (adjoint ? i : p)) * inner + b]));
      }
  return to;
}

/// The next index in row-major order; false behind the last.
bool advance(MutableArrayRef<int64_t> at, ArrayRef<int64_t> extents) {
  for (size_t i = at.size(); i-- > 0; at[i] = 0)
    if (++at[i] < extents[i])
      return true;
  return false;
}

/// All axes at once, as kernels do: products of FP32 weights, then one fused multiply-add for each sample.
Tensor resampleAtOnce(ResizeOp op, const Tensor &x, const InterpreterFrame &frame, FloatType accumulator) {
  Tensor y(x.getType().clone(tensorType(op.getY()).getShape()));
  ArrayRef<double> in = x.reals();
  MutableArrayRef<double> sums = y.writeReals();
  withProducts(frame, accumulator, [&](auto add) {
    SmallVector<int64_t> at(y.shape().size(), 0), tap(op.getAxes().size(), 0);
    for (double &sum : sums) {
      do {
        SmallVector<int64_t> from(at);
        float weight = 1;
        for (auto [i, axis] : llvm::enumerate(op.getAxes())) {
          int64_t entry = at[axis] * op.getTaps()[i] + tap[i];
          from[axis] = cast<DenseI64ArrayAttr>(op.getPositions()[i])[entry];
          weight *= static_cast<float>(cast<DenseF64ArrayAttr>(op.getWeights()[i])[entry]);
        }
        int64_t position = 0;
        for (auto [i, extent] : llvm::zip_equal(from, x.shape()))
          position = position * extent + i;
        double factor = weight;
        add(&sum, in[position], &factor, 1);
      } while (advance(tap, op.getTaps()));
      advance(at, y.shape());
    }
  });
  return y;
}

LogicalResult interpretResize(ResizeOp op, InterpreterFrame &frame) {
  Tensor value = frame.get(op.getX());
  FloatType accumulator = frame.accumulatorType(value.getElementType(), numericsOf(op));
  if (frame.ordersSums() && accumulator.isF32()) {
    frame.set(op.getY(), resampleAtOnce(op, value, frame, accumulator));
    return success();
  }
  ArrayRef<int64_t> shape = tensorType(op.getY()).getShape();
  withRounding(accumulator, [&](auto round) {
    for (size_t a = 0; a < op.getAxes().size(); ++a)
      value = resample(op, a, value, shape[op.getAxes()[a]], /*adjoint=*/false, round);
  });
  frame.set(op.getY(), std::move(value));
  return success();
}

LogicalResult interpretResizeBackward(ResizeBackwardOp op, InterpreterFrame &frame) {
  Tensor value = frame.get(op.getDy());
  ArrayRef<int64_t> shape = tensorType(op.getDx()).getShape();
  withRounding(frame.accumulatorType(value.getElementType(), numericsOf(op)), [&](auto round) {
    for (size_t a = op.getAxes().size(); a-- > 0;)
      value = resample(op, a, value, shape[op.getAxes()[a]], /*adjoint=*/true, round);
  });
  frame.set(op.getDx(), std::move(value));
  return success();
}

} // namespace

void mpt::attachResizeRules(MLIRContext *context) {
  attachRule<ResizeOp, interpretResize, AccessPattern::Windows>(context);
  attachRule<ResizeBackwardOp, interpretResizeBackward, AccessPattern::Windows>(context);
}
