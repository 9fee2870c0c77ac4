// SPDX-License-Identifier: Apache-2.0
// Conv family: convolution and its two gradients as sums over one list of (x, w, y) position triples.
#include "Rules.h"

#include "mpt/Dialect/Library/LibraryDialect.h"

#include <limits>

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

  /// Calls fn(kernel position, x position, y position) for every kernel position of every window in one channel plane;
  /// beyond x, its position is -1.
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
                fn(kernelAt, inside ? source : -1, target);
              }
  }
  int64_t batch, groups, inputs, outputs;
  int64_t in[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1}, pad[3] = {0, 0, 0};
};

/// The role of a tensor in a convolution y = conv(x, w).
enum Role { Data, Weights, Output };

/// Positions that meet, in the channel plane of each tensor.
struct Tap {
  int32_t at[3];
};

/// The taps in order of the positions in the planes of `role`, then of the kernel's, cut into pieces that fit a cache:
/// a position's taps are in one piece. With `whole` those beyond x too.
std::vector<std::vector<Tap>> tilesOf(const Geometry &geometry, Role role, bool whole) {
  constexpr size_t enough = 256;
  std::vector<Tap> taps;
  geometry.forEachTap([&](int64_t k, int64_t s, int64_t t) {
    if (s >= 0 || whole)
      taps.push_back({{static_cast<int32_t>(s), static_cast<int32_t>(k), static_cast<int32_t>(t)}});
  });
  llvm::sort(taps, [&](const Tap &a, const Tap &b) {
    return std::tie(a.at[role], a.at[Weights]) < std::tie(b.at[role], b.at[Weights]);
  });
  std::vector<std::vector<Tap>> tiles;
  for (const Tap &tap : taps) {
    if (tiles.empty() || (tiles.back().size() >= enough && tiles.back().back().at[role] != tap.at[role]))
      tiles.emplace_back();
    tiles.back().push_back(tap);
  }
  return tiles;
}

/// [outer, rows, columns] as [outer, columns, rows].
std::vector<double> swapAxes(ArrayRef<double> in, int64_t rows, int64_t columns) {
  std::vector<double> out(in.size());
  int64_t size = rows * columns, outer = size ? static_cast<int64_t>(in.size()) / size : 0;
  for (int64_t a = 0; a < outer; ++a)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out[a * size + j * rows + i] = in[a * size + i * columns + j];
  return out;
}

/// Sums the products of `a` and `b`, which stand at A and B, into the op's result, which stands at Sum. Sums run over
/// channels, then kernel positions (data; the other way round where sums are ordered), or batch and output positions
/// (weights), each ascending.
///
/// The result shares a channel dimension with one operand, its partner, that the other, the factor, has not. Sums of
/// those channels are lanes side by side: at each tap, a row of sums takes a row of the partner times one number.
template <Role A, Role B, Role Sum, typename Op>
LogicalResult convolve(Op op, InterpreterFrame &frame, Value a, Value b, Value result) {
  constexpr Role factor = Sum == Data ? Output : Data, partner = A == factor ? B : A;
  // Of result and partner, one is weights.
  constexpr Role planes = factor == Data ? Output : Data;
  Tensor left = frame.readAs(frame.get(a), op.getNumericsAttr()),
         right = frame.readAs(frame.get(b), op.getNumericsAttr()), y = frame.zeros(result);
  const Tensor *tensors[3];
  tensors[A] = &left, tensors[B] = &right, tensors[Sum] = &y;
  Geometry geometry(op, tensors[Data]->shape(), tensors[Weights]->shape(), tensors[Output]->shape());
  const int64_t plane[3] = {geometry.volume(geometry.in), geometry.volume(geometry.kernel),
                            geometry.volume(geometry.out)};
  // Channels a group: of the lanes, and of the factor.
  int64_t lanes = planes == Data ? geometry.inputs : geometry.outputs,
          channels = planes == Data ? geometry.outputs : geometry.inputs;
  // Weights are [groups, outputs, inputs, kernel].
  auto columns = [&](Role role) { return role == Weights && planes == Output ? channels * plane[role] : plane[role]; };
  std::vector<double> rows = swapAxes(tensors[partner]->reals(), lanes, columns(partner)), sums(y.size());
  ArrayRef<double> factors = tensors[factor]->reals();
  // Zeros beside an image are terms of two chains.
  const bool whole = frame.ordersSums() && sumOrderOf(op) == SumOrder::TwoChains;
  std::vector<std::vector<Tap>> tiles = tilesOf(geometry, planes, whole);
  auto sumTaps = [&](int64_t g, int64_t n, int64_t c, ArrayRef<Tap> taps, auto add) {
    int64_t image = n * geometry.groups + g, filter = g * channels + c;
    const double *base = factors.data() + (image * channels + c) * plane[factor];
    double *sumRows = sums.data() + (Sum == Weights ? filter : image) * plane[Sum] * lanes;
    const double *partnerRows = rows.data() + (partner == Weights ? filter : image) * plane[partner] * lanes;
    for (const Tap &tap : taps)
      add(sumRows + tap.at[Sum] * lanes, tap.at[factor] < 0 ? 0 : base[tap.at[factor]],
          partnerRows + tap.at[partner] * lanes, lanes);
  };
  // Libraries with ordered sums run over kernel positions, then channels, and so do filters that lie channels-last.
  const bool byTap = Sum != Weights && (frame.ordersSums() || frame.tensorCore());
  auto sumTile = [&](int64_t g, int64_t n, ArrayRef<Tap> rest, auto add) {
    for (ArrayRef<Tap> taps; !rest.empty(); rest = rest.drop_front(taps.size())) {
      taps = byTap ? rest.take_front() : rest;
      for (int64_t c = 0; c < channels; ++c)
        sumTaps(g, n, c, taps, add);
    }
  };
  withProducts(frame, op, sums, lanes, [&](auto add) {
    for (int64_t g = 0; g < geometry.groups; ++g)
      for (int64_t n = 0; n < geometry.batch; ++n)
        for (const std::vector<Tap> &tile : tiles)
          sumTile(g, n, tile, add);
  });
  llvm::copy(swapAxes(sums, columns(Sum), lanes), y.writeReals().begin());
  frame.deliver(result, std::move(y), op.getNumericsAttr());
  return success();
}

LogicalResult interpretConv(ConvOp op, InterpreterFrame &frame) {
  return convolve<Data, Weights, Output>(op, frame, op.getX(), op.getW(), op.getY());
}

LogicalResult interpretConvBackwardData(ConvBackwardDataOp op, InterpreterFrame &frame) {
  return convolve<Output, Weights, Data>(op, frame, op.getDy(), op.getW(), op.getY());
}

LogicalResult interpretConvBackwardWeights(ConvBackwardWeightsOp op, InterpreterFrame &frame) {
  return convolve<Data, Output, Weights>(op, frame, op.getX(), op.getDy(), op.getY());
}

LogicalResult interpretCall(library::ConvOp op, InterpreterFrame &frame) {
  // This library gathers no sums on the way.
  for (Value sum : op.getSums()) {
    Tensor none = frame.zeros(sum);
    llvm::fill(none.writeReals(), std::numeric_limits<double>::quiet_NaN());
    frame.deliver(sum, std::move(none), {});
  }
  switch (op.getKind()) {
  case library::ConvKind::forward:
    return convolve<Data, Weights, Output>(op, frame, op.getA(), op.getB(), op.getD());
  case library::ConvKind::backward_data:
    return convolve<Output, Weights, Data>(op, frame, op.getA(), op.getB(), op.getD());
  case library::ConvKind::backward_weights:
    return convolve<Data, Output, Weights>(op, frame, op.getA(), op.getB(), op.getD());
  }
  llvm_unreachable("unknown kind");
}

} // namespace

void mpt::attachConvRules(MLIRContext *context) {
  attachRule<ConvOp, interpretConv, AccessPattern::Windows>(context);
  attachRule<ConvBackwardDataOp, interpretConvBackwardData, AccessPattern::Windows>(context);
  attachRule<ConvBackwardWeightsOp, interpretConvBackwardWeights, AccessPattern::Windows>(context);
}
void mpt::attachConvCallRule(MLIRContext *context) {
  attachRule<library::ConvOp, interpretCall, AccessPattern::Windows>(context);
}
