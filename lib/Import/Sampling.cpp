// SPDX-License-Identifier: Apache-2.0
// Images read at points that are computed at run time, by gathers.
#include "Sampling.h"

using namespace mlir;
using namespace mpt;

namespace {
/// The walk over all combinations of the axes' taps.
class SampleReader {
public:
  SampleReader(Binder &b, Value rows, ArrayRef<int64_t> extents, ArrayRef<AxisTaps> axes, Join join)
      : b(b), rows(rows), extents(extents), axes(axes), join(join) {}

  Value read() {
    visit(0, Tap());
    return joined;
  }

private:
  void visit(size_t axis, const Tap &so) {
    if (axis == axes.size())
      return take(so);
    for (const Tap &tap : axes[axis]) {
      Tap next = so;
      next.index = so.index ? b.add(b.mul(so.index, static_cast<double>(extents[axis])), tap.index) : tap.index;
      if (tap.weight)
        next.weight = so.weight ? b.mul(so.weight, tap.weight) : tap.weight;
      if (tap.inside)
        next.inside = so.inside ? b.make<AndOp>(so.inside, tap.inside) : tap.inside;
      visit(axis + 1, next);
    }
  }

  void take(const Tap &tap) {
    RankedTensorType points = tensorType(tap.index);
    SmallVector<int64_t> tuple(points.getShape()), shape(points.getShape());
    tuple.push_back(1);
    shape.push_back(tensorType(rows).getShape().back());
    Value sample = b.make<GatherNDOp>(rows, b.reshape(tap.index, tuple), 1);
    if (tap.weight)
      sample = b.mul(sample, b.broadcast(b.cast(tap.weight, tensorType(rows).getElementType()), shape, {0, 1}));
    if (tap.inside)
      sample = b.select(b.broadcast(tap.inside, shape, {0, 1}), sample, b.splatLike(sample, 0));
    joined = !joined ? sample : join == Join::sum ? b.add(joined, sample) : b.make<MaxOp>(joined, sample);
  }

  Binder &b;
  Value rows, joined;
  ArrayRef<int64_t> extents;
  ArrayRef<AxisTaps> axes;
  Join join;
};
} // namespace

Value mpt::readSamples(Binder &b, Value rows, ArrayRef<int64_t> extents, ArrayRef<AxisTaps> axes, Join join) {
  return SampleReader(b, rows, extents, axes, join).read();
}

AxisTaps mpt::linearTaps(Binder &b, Value position, int64_t extent) {
  double last = static_cast<double>(extent) - 1;
  Value below = b.make<FloorOp>(position), part = b.sub(position, below);
  auto tap = [&](Value at, Value weight) {
    Value inside = b.make<AndOp>(b.compare(Predicate::ge, at, 0.0), b.compare(Predicate::le, at, last));
    Value index = b.make<ClampOp>(at, APFloat(0.0), APFloat(last));
    return Tap{b.cast(index, b.builder.getI64Type()), weight, inside};
  };
  return {tap(below, b.add(b.neg(part), 1.0)), tap(b.add(below, 1.0), part)};
}

Value mpt::rowsOf(Binder &b, Value x) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  int64_t samples = ShapedType::getNumElements(shape.drop_front(2));
  return b.transpose(b.reshape(x, {shape[0], shape[1], samples}), {0, 2, 1});
}
