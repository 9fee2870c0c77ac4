// SPDX-License-Identifier: Apache-2.0
// Convolutions and both gradients against naive FP64 loops: one to three dimensions, strides, padding, dilation,
// groups, depthwise, bias, types.
#include "Check.h"
#include "Values.h"
#include "core/Error.h"
#include "cpu/Gemm.h"
#include "mpt/Support/TwoChains.h"

#include <cmath>
#include <cstring>
#include <string>

using namespace mpt::rt;
using mpt::test::Call;
using mpt::test::Values;

namespace {

struct Shape {
  const char *what;
  int64_t n, groups, ic, oc, in[3], kernel[3], stride[3], dilation[3], low[3], high[3];
};

const Shape shapes[] = {
    {"3x3", 2, 1, 8, 16, {1, 9, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {"first layer", 2, 1, 3, 16, {1, 12, 12}, {1, 7, 7}, {1, 2, 2}, {1, 1, 1}, {0, 3, 3}, {0, 3, 3}},
    {"few results", 2, 1, 3, 4, {1, 9, 37}, {1, 5, 7}, {1, 2, 2}, {1, 1, 1}, {0, 2, 3}, {0, 1, 3}},
    {"few results of groups", 2, 2, 6, 14, {2, 6, 53}, {2, 3, 3}, {1, 2, 3}, {1, 1, 2}, {1, 1, 2}, {0, 0, 3}},
    {"1x1", 3, 1, 24, 40, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {"1x1 stride 2", 2, 1, 16, 8, {1, 6, 6}, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {"odd channels", 1, 1, 5, 7, {1, 6, 5}, {1, 3, 2}, {1, 1, 2}, {1, 1, 1}, {0, 1, 0}, {0, 0, 1}},
    {"groups", 2, 4, 16, 32, {1, 6, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {"depthwise", 2, 16, 16, 16, {1, 8, 8}, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {"dilated", 1, 1, 8, 8, {1, 10, 10}, {1, 3, 3}, {1, 1, 1}, {1, 2, 2}, {0, 2, 2}, {0, 2, 2}},
    {"1-D", 2, 1, 8, 12, {1, 1, 20}, {1, 1, 5}, {1, 1, 2}, {1, 1, 1}, {0, 0, 2}, {0, 0, 2}},
    {"wide 3x3", 2, 1, 32, 20, {1, 9, 7}, {1, 3, 3}, {1, 2, 1}, {1, 1, 2}, {0, 1, 2}, {0, 0, 2}},
    {"wide 1x1 stride 2", 3, 1, 64, 40, {1, 9, 9}, {1, 1, 1}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}},
    {"wide 3x3 of whole tiles", 2, 1, 64, 96, {1, 11, 10}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {"wide 3-D", 2, 1, 32, 6, {4, 5, 6}, {2, 3, 3}, {1, 2, 1}, {1, 1, 1}, {1, 1, 0}, {0, 1, 1}},
    {"few positions", 2, 1, 32, 64, {1, 3, 2}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}},
    {"few positions, stride 2", 1, 1, 33, 70, {2, 5, 6}, {2, 3, 2}, {1, 2, 3}, {1, 2, 1}, {1, 1, 0}, {0, 2, 1}},
    {"3-D", 1, 1, 4, 8, {4, 5, 6}, {3, 3, 3}, {1, 1, 2}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
};

const int64_t types[] = {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16, MPT_FLOAT8E4M3FN};

/// Operands of `type`; 16-bit ones with a result of the same type, or a wide one.
mpt_conv_desc describe(const Shape &s, int64_t kind, int64_t type, bool wide = false) {
  mpt_conv_desc d{};
  d.kind = kind, d.n = s.n, d.groups = s.groups, d.ic = s.ic, d.oc = s.oc;
  for (int i = 0; i < 3; ++i) {
    d.in[i] = s.in[i], d.kernel[i] = s.kernel[i], d.stride[i] = s.stride[i], d.dilation[i] = s.dilation[i];
    d.pad_low[i] = s.low[i], d.pad_high[i] = s.high[i];
    d.out[i] = (s.in[i] + s.low[i] + s.high[i] - s.dilation[i] * (s.kernel[i] - 1) - 1) / s.stride[i] + 1;
  }
  d.x_type = d.w_type = d.y_type = type;
  if (wide)
    (kind == MPT_CONV_FORWARD ? d.y_type : kind == MPT_CONV_BACKWARD_DATA ? d.x_type : d.w_type) = MPT_FLOAT32;
  if (type == MPT_FLOAT8E4M3FN) { // as recipes have it: gradients in 1-5-2, results wider
    d.y_type = MPT_FLOAT8E5M2;
    (kind == MPT_CONV_FORWARD         ? d.y_type
     : kind == MPT_CONV_BACKWARD_DATA ? d.x_type
                                      : d.w_type) = s.n % 2 ? MPT_FLOAT32 : MPT_FLOAT16;
  }
  d.workspace_bytes = mpt_conv_workspace(&d, 0);
  return d;
}

struct Tensors {
  Values x, w, y, bias;
};

/// Calls visit(index, the three indices) for every position of `extents`, in order.
template <typename Visit> void positions(const int64_t (&extents)[3], Visit visit) {
  for (int64_t i = 0; i < extents[0] * extents[1] * extents[2]; ++i) {
    const int64_t at[3] = {i / extents[2] / extents[1], i / extents[2] % extents[1], i % extents[2]};
    visit(i, at);
  }
}

/// The element of x, without its channel, that kernel position k takes for output position o; false outside x.
bool sourceOf(const mpt_conv_desc &d, const int64_t (&o)[3], const int64_t (&k)[3], int64_t &x) {
  x = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t at = o[i] * d.stride[i] - d.pad_low[i] + k[i] * d.dilation[i];
    if (at < 0 || at >= d.in[i])
      return false;
    x = x * d.in[i] + at;
  }
  return true;
}

/// Calls visit(x index, w index, y index) for every product of the convolution.
template <typename Visit> void products(const mpt_conv_desc &d, Visit visit) {
  const int64_t icg = d.ic / d.groups, ocg = d.oc / d.groups, taps = d.kernel[0] * d.kernel[1] * d.kernel[2];
  const int64_t inputs = d.in[0] * d.in[1] * d.in[2], outputs = d.out[0] * d.out[1] * d.out[2];
  auto channels = [&](int64_t x, int64_t tap, int64_t y) {
    for (int64_t oc = 0; oc < d.oc; ++oc)
      for (int64_t c = 0; c < icg; ++c)
        visit(x * d.ic + oc / ocg * icg + c, (oc * icg + c) * taps + tap, y * d.oc + oc);
  };
  for (int64_t n = 0; n < d.n; ++n)
    positions(d.out, [&](int64_t y, const int64_t (&o)[3]) {
      positions(d.kernel, [&](int64_t tap, const int64_t (&k)[3]) {
        if (int64_t x; sourceOf(d, o, k, x))
          channels(n * inputs + x, tap, n * outputs + y);
      });
    });
}

double worst(const mpt_conv_desc &d, const Tensors &t) {
  const Values &result = d.kind == MPT_CONV_FORWARD ? t.y : d.kind == MPT_CONV_BACKWARD_DATA ? t.x : t.w;
  std::vector<double> sum(static_cast<size_t>(result.count())), size(sum.size());
  products(d, [&](int64_t x, int64_t w, int64_t y) {
    double p = d.kind == MPT_CONV_FORWARD         ? t.x[x] * t.w[w]
               : d.kind == MPT_CONV_BACKWARD_DATA ? t.y[y] * t.w[w]
                                                  : t.x[x] * t.y[y];
    auto at = static_cast<size_t>(d.kind == MPT_CONV_FORWARD ? y : d.kind == MPT_CONV_BACKWARD_DATA ? x : w);
    sum[at] += p;
    size[at] += std::fabs(p);
  });
  double epsilon = (result.dtype == MPT_FLOAT16 ? 0x1p-11 : result.dtype == MPT_BFLOAT16 ? 0x1p-8 : 0) + 0x1p-20;
  double worst = 0;
  for (size_t i = 0; i < sum.size(); ++i) {
    double value = sum[i] + (d.bias_type ? t.bias[static_cast<int64_t>(i) % t.bias.count()] : 0);
    if (d.flags & MPT_GEMM_RELU)
      value = value < 0 ? 0 : value;
    double error = std::fabs(result[static_cast<int64_t>(i)] - value) / ((size[i] + 1) * epsilon);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

void testCase(const Shape &s, int64_t kind, int64_t type, bool bias, bool wide, bool own) {
  mpt_conv_desc d = describe(s, kind, type, wide);
  if (bias)
    d.bias_type = type;
  if (bias && kind == MPT_CONV_FORWARD)
    d.flags = MPT_GEMM_RELU;
  int64_t xs = d.n * d.ic, ys = d.n * d.oc, ws = d.oc * (d.ic / d.groups);
  for (int i = 0; i < 3; ++i)
    xs *= d.in[i], ys *= d.out[i], ws *= d.kernel[i];
  Tensors t{Values::random(d.x_type, xs), Values::random(d.w_type, ws), Values::random(d.y_type, ys),
            Values::random(type, kind == MPT_CONV_BACKWARD_DATA ? d.ic : d.oc)};
  Scratch workspace;
  ScratchStack scratch;
  std::vector<uint8_t> first;
  Call call(2);
  call.context.scratch = &scratch;
  const void *added = bias ? t.bias.data() : nullptr;
  for (int repeat = 0; repeat < 2; ++repeat) { // the second call runs the code that the first one compiled
    int32_t status = own ? convOwn(&call.exec, d, added, t.x.data(), t.w.data(), t.y.data())
                         : mpt_rt_conv(&call.exec, 0, &d, added, t.x.data(), t.w.data(), t.y.data(),
                                       workspace.get(d.workspace_bytes + 64));
    if (!EXPECT(status == 0) || !EXPECT(worst(d, t) < 1)) {
      fprintf(stderr, "  %s kind %ld %s wide %d bias %d own %d: status %d %s, error %g\n", s.what, (long)kind,
              nameOf(type), wide, bias, own, status, status ? mpt_last_error() : "", worst(d, t));
      return;
    }
    Values &result = kind == MPT_CONV_FORWARD ? t.y : kind == MPT_CONV_BACKWARD_DATA ? t.x : t.w;
    if (repeat)
      EXPECT(result.bytes == first);
    first = result.bytes;
  }
}

/// Whether FP32 results are chains of fused multiply-adds: kernel positions ascending, then channels.
bool isOrdered(const mpt_conv_desc &d, const Tensors &t) {
  const bool forward = d.kind == MPT_CONV_FORWARD;
  const Values &result = forward ? t.y : t.x;
  const int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2];
  std::vector<float> sum(static_cast<size_t>(result.count()));
  for (int64_t tap = 0; tap < taps; ++tap)
    products(d, [&](int64_t x, int64_t w, int64_t y) {
      if (w % taps != tap)
        return;
      float &at = sum[static_cast<size_t>(forward ? y : x)];
      at = std::fmaf(static_cast<float>(forward ? t.x[x] : t.y[y]), static_cast<float>(t.w[w]), at);
    });
  return memcmp(sum.data(), result.bytes.data(), sum.size() * sizeof(float)) == 0;
}

/// Whether FP32 results are sums in two chains: kernel positions ascending, then channels; zeros beside the image.
bool isInTwoChains(const mpt_conv_desc &d, const Tensors &t) {
  const int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2];
  const int64_t inputs = d.in[0] * d.in[1] * d.in[2], outputs = d.out[0] * d.out[1] * d.out[2];
  bool same = true;
  for (int64_t n = 0; n < d.n; ++n)
    positions(d.out, [&](int64_t y, const int64_t (&o)[3]) {
      std::vector<float> sum(static_cast<size_t>(d.oc));
      positions(d.kernel, [&](int64_t tap, const int64_t (&k)[3]) {
        int64_t x;
        const bool inside = sourceOf(d, o, k, x);
        for (int64_t oc = 0; oc < d.oc; ++oc)
          for (int64_t c = 0; c < d.ic; c += mpt::TwoChains::terms) {
            auto a = [&](int64_t p) { return inside ? static_cast<float>(t.x[(n * inputs + x) * d.ic + c + p]) : 0; };
            auto b = [&](int64_t p) { return static_cast<float>(t.w[(oc * d.ic + c + p) * taps + tap]); };
            float &at = sum[static_cast<size_t>(oc)];
            at = mpt::TwoChains::add(at, a, b, mpt::TwoChains::terms);
          }
      });
      same &= memcmp(sum.data(), t.y.bytes.data() + (n * outputs + y) * d.oc * 4, sum.size() * 4) == 0;
    });
  return same;
}

/// MPT_GEMM_TWO_CHAINS, bit for bit: the least normal numbers among the operands; other channels and groups are
/// refused.
void testTwoChains(const Shape &s) {
  mpt_conv_desc d = describe(s, MPT_CONV_FORWARD, MPT_BFLOAT16, true);
  int64_t xs = d.n * d.ic, ys = d.n * d.oc, ws = d.oc * (d.ic / d.groups);
  for (int i = 0; i < 3; ++i)
    xs *= d.in[i], ys *= d.out[i], ws *= d.kernel[i];
  Tensors t{Values::random(d.x_type, xs), Values::random(d.w_type, ws), Values(d.y_type, ys), Values(d.x_type, 1)};
  for (int64_t i = 0; i < d.ic; ++i)
    t.x.set(i, std::copysign(0x1p-126, t.x[i]));
  for (int threads : {1, 3}) {
    Call call(threads);
    ScratchStack scratch;
    call.context.scratch = &scratch;
    auto run = [&](int64_t flags, bool own = false) {
      d.flags = flags;
      if (own) // not in matrix tiles
        return convOwn(&call.exec, d, nullptr, t.x.data(), t.w.data(), t.y.data());
      return mpt_rt_conv(&call.exec, 0, &d, nullptr, t.x.data(), t.w.data(), t.y.data(), nullptr);
    };
    const int32_t status = run(MPT_GEMM_ORDERED | MPT_GEMM_TWO_CHAINS);
    if (d.groups != 1 || d.ic % 32) {
      EXPECT(status == MPT_INVALID_ARGUMENT && strstr(mpt_last_error(), "two chains"));
      continue;
    }
    EXPECT(status == 0);
    if (gemmKernels().run != gemmPortable.run) {
      if (!EXPECT(isInTwoChains(d, t)) ||
          !EXPECT(run(MPT_GEMM_ORDERED | MPT_GEMM_TWO_CHAINS, true) == 0 && isInTwoChains(d, t)))
        fprintf(stderr, "  two chains: %s on %d threads\n", s.what, threads);
    }
    EXPECT(run(MPT_GEMM_ORDERED) == 0 && !isInTwoChains(d, t)); // the check can fail
  }
}

/// With MPT_GEMM_ORDERED the first image of a batch has the bits that it has alone, on any number of threads.
void testOrdered(const Shape &s, int64_t kind, int64_t type) {
  mpt_conv_desc d = describe(s, kind, type);
  d.flags = MPT_GEMM_ORDERED;
  int64_t xs = d.ic, ys = d.oc, ws = d.oc * (d.ic / d.groups);
  for (int i = 0; i < 3; ++i)
    xs *= d.in[i], ys *= d.out[i], ws *= d.kernel[i];
  Tensors t{Values::random(d.x_type, d.n * xs), Values::random(d.w_type, ws), Values::random(d.y_type, d.n * ys),
            Values::random(type, 1)};
  Values &result = kind == MPT_CONV_FORWARD ? t.y : t.x;
  std::vector<uint8_t> first;
  for (int64_t n : {d.n, int64_t{1}})
    for (int threads : {1, 3}) {
      mpt_conv_desc part = d;
      part.n = n;
      Call call(threads);
      ScratchStack scratch;
      call.context.scratch = &scratch;
      int32_t status = mpt_rt_conv(&call.exec, 0, &part, nullptr, t.x.data(), t.w.data(), t.y.data(), nullptr);
      if (!EXPECT(status == 0) || !EXPECT(n < d.n || worst(d, t) < 1)) {
        fprintf(stderr, "  ordered %s kind %ld %s n %ld: status %d, error %g\n", s.what, (long)kind, nameOf(type),
                (long)n, status, worst(part, t));
        return;
      }
      EXPECT(type != MPT_FLOAT32 || n < d.n || gemmKernels().run == gemmPortable.run || isOrdered(d, t));
      std::vector<uint8_t> image = result.bytes;
      image.resize(static_cast<size_t>((kind == MPT_CONV_FORWARD ? ys : xs) * sizeOf(result.dtype)));
      EXPECT(first.empty() || image == first);
      first = image;
    }
}

} // namespace

int main() {
  srand(3);
  for (const Shape &s : shapes)
    for (int64_t type : {MPT_FLOAT32, MPT_FLOAT16, MPT_BFLOAT16})
      for (int64_t kind : {MPT_CONV_FORWARD, MPT_CONV_BACKWARD_DATA})
        testOrdered(s, kind, type);
  for (const Shape &s : shapes)
    testTwoChains(s);
  for (bool own : {false, true})
    for (const Shape &s : shapes)
      for (int64_t type : types)
        for (int64_t kind = 0; kind < 3; ++kind) {
          testCase(s, kind, type, false, false, own);
          if (type != MPT_FLOAT8E4M3FN && kind != MPT_CONV_BACKWARD_WEIGHTS)
            testCase(s, kind, type, true, false, own);
          if (type == MPT_FLOAT16 || type == MPT_BFLOAT16)
            testCase(s, kind, type, false, true, own);
        }
  Call call(1);
  mpt_conv_desc d = describe(shapes[0], MPT_CONV_FORWARD, MPT_FLOAT16);
  d.workspace_bytes = 0;
  if (oneDnnNative(MPT_FLOAT32)) { // our own convolutions need none
    EXPECT(mpt_rt_conv(&call.exec, 0, &d, nullptr, nullptr, nullptr, nullptr, nullptr) == MPT_INTERNAL);
    EXPECT(std::string(mpt_last_error()).find("workspace") != std::string::npos);
  }
  d = describe(shapes[0], MPT_CONV_FORWARD, MPT_INT8);
  EXPECT(mpt_rt_conv(&call.exec, 0, &d, nullptr, nullptr, nullptr, nullptr, nullptr) == MPT_UNSUPPORTED);
  return mpt::test::finish("conv");
}
