// SPDX-License-Identifier: Apache-2.0
// Convolution over N, C and spatial dimensions.
#include "Windows.h"

using namespace mlir;
using namespace mpt;

/// y plus a bias of one value a channel.
static Value addBias(Binder &b, Value y, Value bias) {
  return b.add(y, b.broadcast(bias, tensorType(y).getShape(), {1}));
}

static LogicalResult checkBias(Binder &b, unsigned i, int64_t channels) {
  if (b.has(i) && (failed(b.need(i + 1)) || b.shape(i) != ArrayRef<int64_t>{channels}))
    return b.fail() << "expected a bias of " << channels << " values, got " << b.in(i).getType();
  return success();
}

static LogicalResult checkOperands(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  if (b.rank(0) < 3 || b.rank(0) > 5 || b.rank(1) != b.rank(0) || b.element(0) != b.element(1) || !b.isFloat(0))
    return b.fail() << "expected float x and w of one rank from 3 to 5, got " << b.in(0).getType() << " and "
                    << b.in(1).getType();
  return success();
}

static LogicalResult importConv(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  int64_t groups = b.intAttr("group", 1);
  ArrayRef<int64_t> x = b.shape(0), w = b.shape(1);
  if (groups < 1 || x[1] != groups * w[1] || w[0] % groups != 0)
    return b.fail() << "expected " << x[1] << " channels in " << groups << " groups, got a filter for " << w[1]
                    << " channels a group and " << w[0] << " outputs";
  SmallVector<int64_t> kernel = b.intsAttr("kernel_shape", w.drop_front(2));
  if (ArrayRef<int64_t>(kernel) != w.drop_front(2))
    return b.fail() << "expected kernel_shape [" << w.drop_front(2) << "] as in the filter, got [" << kernel << "]";
  FailureOr<Window> window = windowOf(b, x.drop_front(2), kernel);
  if (failed(window) || failed(checkBias(b, 2, w[0])))
    return failure();
  Value y = b.make<ConvOp>(b.in(0), b.in(1), window->strides, window->dilations, window->low, window->high, groups,
                           NumericsAttr());
  return b.done(b.has(2) ? addBias(b, y, b.in(2)) : y);
}

static LogicalResult importConvTranspose(Binder &b) {
  if (failed(checkOperands(b)))
    return failure();
  int64_t groups = b.intAttr("group", 1);
  ArrayRef<int64_t> x = b.shape(0), w = b.shape(1);
  size_t rank = x.size() - 2;
  if (groups < 1 || x[1] != w[0] || x[1] % groups != 0)
    return b.fail() << "expected a filter for " << x[1] << " channels in " << groups << " groups, got [" << w << "]";
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0), none(rank, 0);
  SmallVector<int64_t> strides = b.intsAttr("strides", ones), dilations = b.intsAttr("dilations", ones);
  SmallVector<int64_t> pads = b.intsAttr("pads", zeros), extra = b.intsAttr("output_padding", none);
  SmallVector<int64_t> wanted = b.intsAttr("output_shape");
  if (failed(b.checkWindow("strides", strides, rank)) || failed(b.checkWindow("dilations", dilations, rank)) ||
      failed(b.checkPads(pads, rank, /*cropping=*/true)))
    return failure();
  if (extra.size() != rank || llvm::any_of(extra, [](int64_t v) { return v < 0 || v > Binder::mostWindow; }))
    return b.fail() << "expected " << rank << " entries of output_padding, got [" << extra << "]";
  if (!wanted.empty() &&
      (wanted.size() < rank || llvm::any_of(wanted, [](int64_t v) { return v < 1 || v > int64_t(1) << 31; })))
    return b.fail() << "expected " << rank << " positive entries of output_shape, got [" << wanted << "]";
  StringRef mode = b.stringAttr("auto_pad", "NOTSET");
  SmallVector<int64_t> shape = {x[0], w[1] * groups}, low, high;
  for (size_t i = 0; i < rank; ++i) {
    FailureOr<int64_t> spread = b.spread(x[i + 2], strides[i]), span = b.spread(w[i + 2], dilations[i]);
    if (failed(spread) || failed(span))
      return failure();
    int64_t full = *spread + *span + 1 + extra[i], begin = pads[i], end = pads[rank + i];
    bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
    if (same || !wanted.empty()) {
      int64_t out = wanted.empty() ? x[i + 2] * strides[i] : wanted[wanted.size() - rank + i];
      int64_t total = full - out;
      begin = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      end = total - begin;
    }
    int64_t out = full - begin - end;
    if (out < 1 || out > (int64_t(1) << 31))
      return b.fail() << "expected a positive output extent, got " << out << " on spatial axis " << i;
    // The convolution whose data gradient this is reads `extra` fewer samples at the end.
    shape.push_back(out);
    low.push_back(begin);
    high.push_back(end - extra[i]);
  }
  if (failed(checkBias(b, 2, shape[1])))
    return failure();
  auto type = RankedTensorType::get(shape, b.element(0));
  Value y = b.make<ConvBackwardDataOp>(type, b.in(0), b.in(1), b.list(strides), b.list(dilations), b.list(low),
                                       b.list(high), b.i64(groups), NumericsAttr());
  return b.done(b.has(2) ? addBias(b, y, b.in(2)) : y);
}

void mpt::addConvRules(RuleTable &t) {
  t.on("Conv", 1, importConv, NumericClass::Contraction);
  t.on("ConvTranspose", 1, importConvTranspose, NumericClass::Contraction);
  t.noRule("DeformConv", NumericClass::Contraction,
           "deformable convolutions are rewritten node by node alone: leave out --loss and --optimizer");
}
