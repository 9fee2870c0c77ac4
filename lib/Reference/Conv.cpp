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

/// Where a tensor stands among those of a convolution y = conv(x, w).
enum Role { Data, Weights, Output };

/// Sums the products of `a` and `b`, which stand at A and B, into the op's result, which stands at Sum. Sums run over
/// channels, then kernel positions (data), or batch and output positions (weights), each ascending.
template <Role A, Role B, Role Sum, typename Op>
LogicalResult convolve(Op op, InterpreterFrame &frame, Value a, Value b) {
  Tensor left = frame.readAs(frame.get(a), op.getNumericsAttr()),
         right = frame.readAs(frame.get(b), op.getNumericsAttr()), sums = frame.zeros(op.getY());
  const Tensor *tensors[3];
  tensors[A] = &left, tensors[B] = &right, tensors[Sum] = &sums;
  Geometry geometry(op, tensors[Data]->shape(), tensors[Weights]->shape(), tensors[Output]->shape());
  std::vector<Tap> taps;
  geometry.forEachTap([&](int64_t k, int64_t s, int64_t t) {
    taps.push_back({static_cast<int32_t>(k), static_cast<int32_t>(s), static_cast<int32_t>(t)});
  });
  auto l = left.reals(), r = right.reals();
  MutableArrayRef<double> out = sums.writeReals();
  withRounding(frame.accumulatorType(left.getElementType(), op.getNumericsAttr()), [&](auto round) {
    geometry.forEachPlane([&](int64_t x, int64_t w, int64_t y) {
      for (const Tap &tap : taps) {
        const int64_t at[3] = {x + tap.source, w + tap.kernel, y + tap.target};
        out[at[Sum]] = round(out[at[Sum]] + l[at[A]] * r[at[B]]);
      }
    });
  });
  frame.deliver(op.getY(), std::move(sums), op.getNumericsAttr());
  return success();
}

LogicalResult interpretConv(ConvOp op, InterpreterFrame &frame) {
  return convolve<Data, Weights, Output>(op, frame, op.getX(), op.getW());
}

LogicalResult interpretConvBackwardData(ConvBackwardDataOp op, InterpreterFrame &frame) {
  return convolve<Output, Weights, Data>(op, frame, op.getDy(), op.getW());
}

LogicalResult interpretConvBackwardWeights(ConvBackwardWeightsOp op, InterpreterFrame &frame) {
  return convolve<Data, Output, Weights>(op, frame, op.getX(), op.getDy());
}

} // namespace

void mpt::attachConvRules(MLIRContext *context) {
  attachRule<ConvOp, interpretConv>(context);
  attachRule<ConvBackwardDataOp, interpretConvBackwardData>(context);
  attachRule<ConvBackwardWeightsOp, interpretConvBackwardWeights>(context);
}
