// SPDX-License-Identifier: Apache-2.0
// Pool family: maxima and means of windows, and their gradients.
#include "Rules.h"
#include "mpt/Dialect/MPT/Accumulators.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Calls window(output position in the plane, input positions of its window that are inside, their kernel positions,
/// how many kernel positions lie on the padded input) for every output position.
template <typename Op, typename Fn>
void forEachWindow(Op op, ArrayRef<int64_t> input, ArrayRef<int64_t> output, Fn window) {
  ArrayRef<int64_t> in = input.drop_front(2), out = output.drop_front(2), kernel = op.getKernel();
  int64_t rank = in.size();
  SmallVector<int64_t> inStrides = rowMajorStrides(in), zeros(rank, 0);
  SmallVector<int64_t> members, positions;
  for (int64_t o = 0, count = ShapedType::getNumElements(out); o < count; ++o) {
    members.clear();
    positions.clear();
    SmallVector<int64_t> at(rank);
    for (int64_t d = rank - 1, rest = o; d >= 0; rest /= out[d], --d)
      at[d] = rest % out[d];
    int64_t padded = 0;
    for (int64_t k = 0, taps = ShapedType::getNumElements(kernel); k < taps; ++k) {
      int64_t position = 0, rest = k;
      bool inside = true, onPadding = true;
      for (int64_t d = rank - 1; d >= 0; rest /= kernel[d], --d) {
        int64_t x = at[d] * op.getStrides()[d] + (rest % kernel[d]) * op.getDilations()[d] - op.getPadsLow()[d];
        inside &= x >= 0 && x < in[d];
        onPadding &= x < in[d] + op.getPadsHigh()[d];
        position += x * inStrides[d];
      }
      padded += onPadding;
      if (!inside)
        continue;
      members.push_back(position);
      positions.push_back(k);
    }
    window(o, members, positions, padded);
  }
}

LogicalResult interpretMaxPool(MaxPoolOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY()), indices = frame.zeros(op.getIndices());
  int64_t planes = x.shape()[0] * x.shape()[1], inSize = ShapedType::getNumElements(x.shape().drop_front(2)),
          outSize = ShapedType::getNumElements(y.shape().drop_front(2));
  ArrayRef<double> xs = x.reals();
  MutableArrayRef<double> ys = y.writeReals();
  MutableArrayRef<int64_t> is = indices.writeInts();
  bool empty = false;
  forEachWindow(op, x.shape(), y.shape(), [&](int64_t o, ArrayRef<int64_t> members, ArrayRef<int64_t>, int64_t) {
    if (members.empty()) {
      empty = true;
      return;
    }
    for (int64_t plane = 0; plane < planes; ++plane) {
      int64_t best = members.front();
      for (int64_t member : members) {
        double value = xs[plane * inSize + member], top = xs[plane * inSize + best];
        if (value > top || std::isnan(value))
          best = member;
      }
      ys[plane * outSize + o] = xs[plane * inSize + best];
      is[plane * outSize + o] = best;
    }
  });
  if (empty)
    return op.emitOpError() << "expected no window that lies in padding alone";
  frame.set(op.getY(), std::move(y));
  frame.set(op.getIndices(), std::move(indices));
  return success();
}

LogicalResult interpretMaxPoolBackward(MaxPoolBackwardOp op, InterpreterFrame &frame) {
  ArrayRef<double> dys = frame.get(op.getDy()).reals();
  ArrayRef<int64_t> indices = frame.get(op.getIndices()).ints();
  Tensor dx = frame.zeros(op.getDx());
  int64_t planes = dx.shape()[0] * dx.shape()[1], inSize = ShapedType::getNumElements(dx.shape().drop_front(2));
  int64_t outSize = planes ? static_cast<int64_t>(dys.size()) / planes : 0;
  MutableArrayRef<double> out = dx.writeReals();
  for (int64_t i : indices)
    if (i < 0 || i >= inSize)
      return op.emitOpError() << "expected positions below " << inSize << ", got " << i;
  withRounding(frame.accumulatorType(dx.getElementType(), numericsOf(op)), [&](auto round) {
    for (int64_t i = 0; i < static_cast<int64_t>(dys.size()); ++i) {
      double &sum = out[i / outSize * inSize + indices[i]];
      sum = round(sum + dys[i]);
    }
  });
  frame.set(op.getDx(), std::move(dx));
  return success();
}

LogicalResult interpretAvgPool(AvgPoolOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  int64_t planes = x.shape()[0] * x.shape()[1], inSize = ShapedType::getNumElements(x.shape().drop_front(2)),
          outSize = ShapedType::getNumElements(y.shape().drop_front(2));
  ArrayRef<double> xs = x.reals();
  MutableArrayRef<double> ys = y.writeReals();
  withRounding(frame.accumulatorType(x.getElementType(), numericsOf(op)), [&](auto round) {
    forEachWindow(op, x.shape(), y.shape(),
                  [&](int64_t o, ArrayRef<int64_t> members, ArrayRef<int64_t>, int64_t padded) {
                    double count = op.getCountIncludePad() ? padded : members.size();
                    for (int64_t plane = 0; plane < planes; ++plane) {
                      double sum = 0.0;
                      for (int64_t member : members)
                        sum = round(sum + xs[plane * inSize + member]);
                      ys[plane * outSize + o] = sum / count;
                    }
                  });
  });
  frame.set(op.getY(), std::move(y));
  return success();
}

/// Shares of dy, rounded, meet in ascending order of the position in the window.
LogicalResult interpretAvgPoolBackward(AvgPoolBackwardOp op, InterpreterFrame &frame) {
  const Tensor &dy = frame.get(op.getDy());
  Tensor dx = frame.zeros(op.getDx());
  int64_t planes = dx.shape()[0] * dx.shape()[1], inSize = ShapedType::getNumElements(dx.shape().drop_front(2)),
          outSize = ShapedType::getNumElements(dy.shape().drop_front(2)),
          taps = ShapedType::getNumElements(op.getKernel());
  // Input position of each kernel position, window by window; -1 outside.
  std::vector<int64_t> sources(taps * outSize, -1);
  std::vector<double> counts(outSize);
  forEachWindow(op, dx.shape(), dy.shape(),
                [&](int64_t o, ArrayRef<int64_t> members, ArrayRef<int64_t> at, int64_t padded) {
                  for (auto [member, k] : llvm::zip_equal(members, at))
                    sources[k * outSize + o] = member;
                  counts[o] = static_cast<double>(op.getCountIncludePad() ? padded : members.size());
                });
  ArrayRef<double> dys = dy.reals();
  MutableArrayRef<double> out = dx.writeReals();
  withRounding(frame.accumulatorType(dx.getElementType(), numericsOf(op)), [&](auto round) {
    for (int64_t plane = 0; plane < planes; ++plane)
      for (size_t i = 0; i < sources.size(); ++i) {
        if (sources[i] < 0)
          continue;
        int64_t o = static_cast<int64_t>(i) % outSize;
        double &sum = out[plane * inSize + sources[i]];
        sum = round(sum + round(dys[plane * outSize + o] / counts[o]));
      }
  });
  frame.set(op.getDx(), std::move(dx));
  return success();
}

} // namespace

void mpt::attachPoolRules(MLIRContext *context) {
  attachRule<MaxPoolOp, interpretMaxPool, AccessPattern::Windows>(context);
  attachRule<MaxPoolBackwardOp, interpretMaxPoolBackward, AccessPattern::Windows>(context);
  attachRule<AvgPoolOp, interpretAvgPool, AccessPattern::Windows>(context);
  attachRule<AvgPoolBackwardOp, interpretAvgPoolBackward, AccessPattern::Windows>(context);
}
