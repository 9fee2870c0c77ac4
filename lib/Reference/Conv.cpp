// Conv family: convolution and its two gradients as sums over one list of (x, w, y) position triples.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Extents padded to three spatial dimensions by ones in front.
struct Geometry {
  template <typename Op>
  Geometry(Op op, ArrayRef<int64_t> x, ArrayRef<int64_t> w, ArrayRef<int64_t> y)
      : batch(x[0]), groups(op.getGroups()), inputs(w[1]), outputs(w[0] / op.getGroups()) {
    int64_t rank = x.size() - 2;
    for (int64_t i = 0; i < rank; ++i) {
      int64_t to = 3 - rank + i;
      in[to] = x[2 + i];
      kernel[to] = w[2 + i];
      out[to] = y[2 + i];
      stride[to] = op.getStrides()[i];
      dilation[to] = op.getDilations()[i];
      pad[to] = op.getPadsLow()[i];
    }
  }
  int64_t volume(const int64_t (&extents)[3]) const { return extents[0] * extents[1] * extents[2]; }

  /// Calls fn(kernel position, x position, y position) for every pair of positions in one channel plane that meet.
  template <typename Fn> void forEachTap(Fn fn) const {
    int64_t k[3], t[3];
    for (k[0] = 0; k[0] < kernel[0]; ++k[0])
      for (k[1] = 0; k[1] < kernel[1]; ++k[1])
        for (k[2] = 0; k[2] < kernel[2]; ++k[2])
          for (t[0] = 0; t[0] < out[0]; ++t[0])
            for (t[1] = 0; t[1] < out[1]; ++t[1])
              for (t[2] = 0; t[2] < out[2]; ++t[2]) {
                int64_t source = 0, kernelAt = 0, target = 0;
                bool inside = true;
                for (int d = 0; d < 3; ++d) {
                  int64_t at = t[d] * stride[d] + k[d] * dilation[d] - pad[d];
                  inside &= at >= 0 && at < in[d];
                  source = source * in[d] + at;
                  kernelAt = kernelAt * kernel[d] + k[d];
                  target = target * out[d] + t[d];
                }
                if (inside)
                  fn(kernelAt, source, target);
              }
  }
  /// Calls fn(x plane, w plane, y plane) with the base positions of every product of channel planes: in ascending order
  /// of group and output channel, then input channel, batch innermost.
  template <typename Fn> void forEachPlane(Fn fn) const {
    int64_t xs = volume(in), ws = volume(kernel), ys = volume(out);
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t o = g * outputs; o < (g + 1) * outputs; ++o)
        for (int64_t c = 0; c < inputs; ++c)
          for (int64_t n = 0; n < batch; ++n)
            fn((n * groups * inputs + g * inputs + c) * xs, (o * inputs + c) * ws, (n * groups * outputs + o) * ys);
  }

  int64_t batch, groups, inputs, outputs;
  int64_t in[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
};

struct Tap {
  int32_t kernel, source, target;
};

/// Runs fn(x, w, y index, round) over all products; `y`, `x` or `w` may be the sum. Sums run over channels, then kernel
/// positions (data), or batch and output positions (weights), each ascending.
template <typename Op, typename Fn>
LogicalResult convolve(Op op, InterpreterFrame &frame, const Geometry &geometry, Type element, Value sum, Tensor sums,
                       Fn fn) {
  std::vector<Tap> taps;
  geometry.forEachTap([&](int64_t k, int64_t s, int64_t t) {
    taps.push_back({static_cast<int32_t>(k), static_cast<int32_t>(s), static_cast<int32_t>(t)});
  });
  MutableArrayRef<double> out = sums.writeReals();
  withRounding(frame.accumulatorType(element, op.getNumericsAttr()), [&](auto round) {
    geometry.forEachPlane([&](int64_t x, int64_t w, int64_t y) {
      for (const Tap &tap : taps)
        fn(out, x + tap.source, w + tap.kernel, y + tap.target, round);
    });
  });
  frame.deliver(sum, std::move(sums), op.getNumericsAttr());
  return success();
}

LogicalResult interpretConv(ConvOp op, InterpreterFrame &frame) {
  Tensor x = frame.readAs(frame.get(op.getX()), op.getNumericsAttr()),
         w = frame.readAs(frame.get(op.getW()), op.getNumericsAttr());
  Tensor y = frame.zeros(op.getY());
  Geometry geometry(op, x.shape(), w.shape(), y.shape());
  return convolve(op, frame, geometry, x.getElementType(), op.getY(), y,
                  [xs = x.reals(), ws = w.reals()](MutableArrayRef<double> out, int64_t i, int64_t k, int64_t o,
                                                   auto round) { out[o] = round(out[o] + xs[i] * ws[k]); });
}

LogicalResult interpretConvBackwardData(ConvBackwardDataOp op, InterpreterFrame &frame) {
  Tensor dy = frame.readAs(frame.get(op.getDy()), op.getNumericsAttr()),
         w = frame.readAs(frame.get(op.getW()), op.getNumericsAttr());
  Tensor dx = frame.zeros(op.getY());
  Geometry geometry(op, dx.shape(), w.shape(), dy.shape());
  return convolve(op, frame, geometry, dy.getElementType(), op.getY(), dx,
                  [ys = dy.reals(), ws = w.reals()](MutableArrayRef<double> out, int64_t i, int64_t k, int64_t o,
                                                    auto round) { out[i] = round(out[i] + ys[o] * ws[k]); });
}

LogicalResult interpretConvBackwardWeights(ConvBackwardWeightsOp op, InterpreterFrame &frame) {
  Tensor x = frame.readAs(frame.get(op.getX()), op.getNumericsAttr()),
         dy = frame.readAs(frame.get(op.getDy()), op.getNumericsAttr());
  Tensor dw = frame.zeros(op.getY());
  Geometry geometry(op, x.shape(), dw.shape(), dy.shape());
  return convolve(op, frame, geometry, x.getElementType(), op.getY(), dw,
                  [xs = x.reals(), ys = dy.reals()](MutableArrayRef<double> out, int64_t i, int64_t k, int64_t o,
                                                    auto round) { out[k] = round(out[k] + xs[i] * ys[o]); });
}

} // namespace

void mpt::attachConvRules(MLIRContext *context) {
  attachRule<ConvOp, interpretConv>(context);
  attachRule<ConvBackwardDataOp, interpretConvBackwardData>(context);
  attachRule<ConvBackwardWeightsOp, interpretConvBackwardWeights>(context);
}
