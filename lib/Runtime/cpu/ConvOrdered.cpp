// SPDX-License-Identifier: Apache-2.0
// Convolutions with MPT_GEMM_ORDERED, and those that neither a GEMM nor oneDNN takes: sums over windows of a padded
// copy in FP32, in one order whatever the batch.
// Channel by channel where each has a filter of its own.
#include "cpu/Gemm.h"

#include "core/Context.h"
#include "core/Error.h"
#include "core/Types.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

using namespace mpt::rt;

namespace {

int64_t volume(const int64_t (&extent)[3]) { return extent[0] * extent[1] * extent[2]; }
int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int32_t noMemory() { return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for its scratch"); }

/// x in FP32, in `memory` where it is narrow.
const float *widened(mpt_exec *exec, const mpt_conv_desc &d, const void *x, float *memory) {
  if (d.x_type == MPT_FLOAT32)
    return static_cast<const float *>(x);
  struct Copy {
    int64_t type;
    const char *in;
    float *out;
  } copy{d.x_type, static_cast<const char *>(x), memory};
  void *args[] = {&copy};
  mpt_rt_parallel(
      exec,
      [](void *const *args, int64_t begin, int64_t end) {
        auto &copy = *static_cast<Copy *>(args[0]);
        gemmKernels().widen(copy.type, copy.in + begin * sizeOf(copy.type), end - begin, copy.out + begin);
      },
      args, d.n * d.ic * volume(d.in), 1 << 15);
  return memory;
}

/// Every channel by its own filter: the vectors run along channels.
struct Channels {
  const mpt_conv_desc *conv;
  const float *x, *w, *bias; // w: [tap][channel]
  char *y;
};

void runChannels(void *const *args, int64_t begin, int64_t end) {
  constexpr int64_t span = 512;
  auto &task = *static_cast<const Channels *>(args[0]);
  const mpt_conv_desc &d = *task.conv;
  const GemmKernels &kernels = gemmKernels();
  float sum[span];
  for (int64_t row = begin; row < end; ++row) {
    int64_t o2 = row % d.out[2], o1 = row / d.out[2] % d.out[1], o0 = row / d.out[2] / d.out[1] % d.out[0],
            n = row / d.out[2] / d.out[1] / d.out[0];
    for (int64_t c = 0; c < d.oc; c += span) {
      const int64_t count = std::min(span, d.oc - c);
      std::fill_n(sum, count, 0.0F);
      for (int64_t t = 0; t < volume(d.kernel); ++t) {
        int64_t x0 = o0 * d.stride[0] - d.pad_low[0] + t / d.kernel[2] / d.kernel[1] * d.dilation[0],
                x1 = o1 * d.stride[1] - d.pad_low[1] + t / d.kernel[2] % d.kernel[1] * d.dilation[1],
                x2 = o2 * d.stride[2] - d.pad_low[2] + t % d.kernel[2] * d.dilation[2];
        if (x0 >= 0 && x0 < d.in[0] && x1 >= 0 && x1 < d.in[1] && x2 >= 0 && x2 < d.in[2])
          kernels.multiplyAdd(task.x + (((n * d.in[0] + x0) * d.in[1] + x1) * d.in[2] + x2) * d.ic + c,
                              task.w + t * d.oc + c, count, sum);
      }
      for (int64_t i = 0; i < count; ++i) {
        float value = task.bias ? sum[i] + task.bias[c + i] : sum[i];
        sum[i] = d.flags & MPT_GEMM_RELU && value < 0 ? 0 : value;
      }
      kernels.narrow(d.y_type, sum, count, task.y + (row * d.oc + c) * sizeOf(d.y_type));
    }
  }
}

int32_t byChannels(mpt_exec *exec, const mpt_conv_desc &d, const void *bias, const void *x, const void *w, void *y) {
  const int64_t taps = volume(d.kernel), xs = d.n * d.ic * volume(d.in), ws = taps * d.oc;
  ScratchLease scratch(exec);
  auto *memory = static_cast<float *>(scratch.get(rounded(xs * 4) + rounded(2 * ws * 4) + d.oc * 4));
  if (!memory)
    return noMemory();
  float *filters = memory + rounded(xs * 4) / 4, *stored = filters + ws, *wide = filters + rounded(2 * ws * 4) / 4;
  gemmKernels().widen(d.w_type, w, ws, stored);
  for (int64_t c = 0; c < d.oc; ++c)
    for (int64_t t = 0; t < taps; ++t)
      filters[t * d.oc + c] = stored[c * taps + t];
  if (d.bias_type)
    gemmKernels().widen(d.bias_type, bias, d.oc, wide);
  Channels task{&d, widened(exec, d, x, memory), filters, d.bias_type ? wide : nullptr, static_cast<char *>(y)};
  void *args[] = {&task};
  mpt_rt_parallel(exec, runChannels, args, d.n * volume(d.out), 1 + 16384 / (taps * d.oc));
  return MPT_OK;
}

/// One dimension of the windows: which positions of the source and of the kernel a result sums. Of transposed
/// convolutions those results that share a remainder by the stride, whose windows are regular again.
struct Axis {
  int64_t count, begin, step;         // windows; where the first begins in the source; how far the next one is
  int64_t taps, tap, everyTap, shift; // kernel positions: how many, the first, and how far apart in kernel and source
  int64_t result, everyResult;        // where the results lie
  int64_t least() const { return std::min(begin, begin + (taps - 1) * shift); }
  int64_t most() const { return std::max(begin, begin + (taps - 1) * shift) + (count - 1) * step; }
};

Axis axisOf(const mpt_conv_desc &d, int i, int64_t remainder) {
  if (d.kind == MPT_CONV_FORWARD)
    return {d.out[i], -d.pad_low[i], d.stride[i], d.kernel[i], 0, 1, d.dilation[i], 0, 1};
  const int64_t stride = d.stride[i], every = stride / std::gcd(stride, d.dilation[i]), at = remainder + d.pad_low[i];
  int64_t first = 0;
  while (first < every && (at - first * d.dilation[i]) % stride)
    ++first;
  const bool none = first == every || first >= d.kernel[i];
  return {(d.in[i] - remainder + stride - 1) / stride,
          none ? 0 : (at - first * d.dilation[i]) / stride,
          1,
          none ? 0 : (d.kernel[i] - 1 - first) / every + 1,
          first,
          every,
          -d.dilation[i] * every / stride,
          remainder,
          stride};
}

/// Calls fn(begin, end) on all threads.
template <typename Fn> void onThreads(mpt_exec *exec, int64_t count, int64_t grain, Fn fn) {
  void *args[] = {&fn};
  mpt_rt_parallel(
      exec, [](void *const *args, int64_t begin, int64_t end) { (*static_cast<Fn *>(args[0]))(begin, end); }, args,
      count, grain);
}

/// Windows of one panel, their kernel positions, and how many windows (or lines of them) there are.
struct Part {
  Windows windows;
  std::vector<WindowTap> taps;
  int64_t rows;
};

thread_local Scratch ownMemory; // a line of the source, or a panel, which a thread keeps for its lifetime

/// A convolution as windows: its source (x, or y of a transposed one), its result, and the memory in between.
struct WindowSums {
  const mpt_conv_desc &d;
  mpt_exec *exec;
  const bool forward = d.kind == MPT_CONV_FORWARD;
  const int64_t taps = volume(d.kernel), nr = gemmKernels().nr;
  const int64_t sources = forward ? d.ic : d.oc, results = forward ? d.oc : d.ic; // channels
  const int64_t channels = sources / d.groups, columns = results / d.groups, panels = (columns + nr - 1) / nr,
                panel = taps * channels * nr;
  // Few results would leave lanes of their vectors idle that neighbouring windows of a line fill.
  const bool byLines = forward && taps > 1 && !(d.flags & MPT_GEMM_TWO_CHAINS) &&
                       shareOfLanes(d.out[2]) > shareOfLanes(columns) && columns <= lineColumns;
  const int64_t span = byLines ? 8 : 8 * gemmKernels().mr; // windows, or lines of them, of a task
  // Few channels: neighbours along a line make one run, for which filters go by kernel position, then channel.
  const bool joins = forward && !byLines && d.groups == 1 && d.dilation[2] == 1 && channels < 32;
  const int64_t *extent = forward ? d.in : d.out, *resultExtent = forward ? d.out : d.in;
  const int64_t sourceType = forward ? d.x_type : d.y_type, resultType = forward ? d.y_type : d.x_type;
  int64_t low[3] = {}, padded[3];
  int64_t plane = 0, line; // of a line in planes: positions that share a remainder by the stride; of all of it
  const char *source, *w;
  float *image;
  std::vector<Part> parts;

  WindowSums(const mpt_conv_desc &d, mpt_exec *exec, const void *source, const void *w)
      : d(d), exec(exec), source(static_cast<const char *>(source)), w(static_cast<const char *>(w)) {
    for (int i = 0; i < 3; ++i) {
      int64_t high = 0;
      for (int64_t r = 0; r < remainders(i); ++r)
        if (Axis axis = axisOf(d, i, r); axis.taps) {
          low[i] = std::max(low[i], -axis.least());
          high = std::max(high, axis.most() - extent[i] + 1);
        }
      padded[i] = low[i] + extent[i] + high;
    }
    if (byLines)
      plane = (padded[2] - 1) / d.stride[2] + nr / 2; // the last vector goes beyond the last window
    line = sources * (byLines ? plane * d.stride[2] : padded[2]);
  }
  double shareOfLanes(int64_t count) const {
    const int64_t lanes = (count + nr / 2 - 1) / (nr / 2) * (nr / 2);
    return static_cast<double>(count) / static_cast<double>(lanes);
  }
  int64_t remainders(int i) const { return forward ? 1 : std::min(d.stride[i], d.in[i]); }
  bool copies() const {
    return byLines || sourceType != MPT_FLOAT32 || volume(padded) != extent[0] * extent[1] * extent[2];
  }
  void padLines(int64_t begin, int64_t end, float *memory) const;
  void toPlanes(const float *from, float *to) const;
  const float *pack(int64_t panel, float *memory) const;
  void run(int64_t begin, int64_t end, float *memory, const float *bias) const;
  int64_t spans() const { return (parts.front().rows + span - 1) / span; }
  void addPart(const Axis (&axes)[3], char *result);
};

/// Lines [begin, end) of the padded copy.
void WindowSums::padLines(int64_t begin, int64_t end, float *memory) const {
  const int64_t given = extent[2] * sources, before = low[2] * sources, after = padded[2] * sources - before - given;
  for (int64_t i = begin; i < end; ++i) {
    float *whole = image + i * line, *to = byLines ? memory : whole;
    int64_t i1 = i % padded[1] - low[1], i0 = i / padded[1] % padded[0] - low[0], n = i / padded[1] / padded[0];
    if (i0 < 0 || i0 >= extent[0] || i1 < 0 || i1 >= extent[1]) {
      std::fill_n(whole, line, 0.0F);
      continue;
    }
    std::fill_n(to, before, 0.0F);
    gemmKernels().widen(sourceType, source + ((n * extent[0] + i0) * extent[1] + i1) * given * sizeOf(sourceType),
                        given, to + before);
    std::fill_n(to + before + given, after, 0.0F);
    if (byLines)
      toPlanes(to, whole);
  }
}

/// A padded line as planes of channels, of each those of positions that share a remainder by the stride.
void WindowSums::toPlanes(const float *from, float *to) const {
  const int64_t stride = d.stride[2];
  for (int64_t c = 0; c < sources; ++c)
    for (int64_t r = 0; r < stride; ++r, to += plane) {
      const int64_t count = padded[2] > r ? (padded[2] - r - 1) / stride + 1 : 0;
      for (int64_t i = 0; i < count; ++i)
        to[i] = from[(i * stride + r) * sources + c];
      std::fill_n(to + count, plane - count, 0.0F);
    }
}

/// The filters of a panel of `nr` columns, counted over all groups.
const float *WindowSums::pack(int64_t number, float *memory) const {
  const GemmKernels &kernels = gemmKernels();
  const int64_t size = sizeOf(d.w_type), group = number / panels, first = number % panels * nr,
                cols = std::min(nr, columns - first);
  if (forward) // [column][channel][tap]
    kernels.packColumns(d.w_type, w + (group * columns + first) * channels * taps * size, channels * taps,
                        channels * taps, cols, memory);
  for (int64_t c = 0; c < channels && !forward; ++c) // [channel][column][tap]
    kernels.packColumns(d.w_type, w + ((group * channels + c) * columns + first) * taps * size, taps, taps, cols,
                        memory + c * taps * nr);
  if (!joins)
    return memory;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < taps; ++t)
      memcpy(memory + panel + (t * channels + c) * nr, memory + (c * taps + t) * nr,
             static_cast<size_t>(nr) * sizeof(float));
  return memory + panel;
}

/// Windows of one panel of the first group.
void WindowSums::addPart(const Axis (&axes)[3], char *result) {
  Windows r{};
  r.image = image, r.channels = channels, r.channelPitch = joins ? nr : taps * nr;
  r.planePitch = plane * d.stride[2];
  r.type = resultType, r.flags = d.flags & ~orderFlags;
  r.twoChains = d.flags & MPT_GEMM_TWO_CHAINS;
  const int64_t pitch[3] = {line * padded[1], line, sources}, filter = joins ? channels * nr : nr;
  int64_t to = results, first = 0;
  for (int i = 3; i-- > 0; to *= resultExtent[i]) {
    const Axis &axis = axes[i];
    r.extent[i + 1] = axis.count, r.pitch[i + 1] = axis.step * pitch[i], r.step[i + 1] = axis.everyResult * to;
    first += axis.result * to;
  }
  r.extent[0] = d.n, r.pitch[0] = line * padded[0] * padded[1], r.step[0] = to;
  r.to = result + first * sizeOf(resultType);
  // Where axis i of the source is read for kernel position t of its own.
  auto at = [&](int i, int64_t t) {
    const int64_t x = low[i] + axes[i].begin + t * axes[i].shift;
    return byLines && i == 2 ? x % d.stride[2] * plane + x / d.stride[2] : x * pitch[i];
  };
  auto position = [&](int i, int64_t t) { return axes[i].tap + t * axes[i].everyTap; };
  std::vector<WindowTap> each;
  for (int64_t t0 = 0; t0 < axes[0].taps; ++t0)
    for (int64_t t1 = 0; t1 < axes[1].taps; ++t1)
      for (int64_t t2 = 0; t2 < (joins ? 1 : axes[2].taps); ++t2)
        each.push_back({at(0, t0) + at(1, t1) + at(2, t2),
                        ((position(0, t0) * d.kernel[1] + position(1, t1)) * d.kernel[2] + position(2, t2)) * filter});
  if (joins)
    r.channels *= axes[2].taps;
  r.count = static_cast<int64_t>(each.size());
  parts.push_back({r, std::move(each), d.n * axes[0].count * axes[1].count * (byLines ? 1 : axes[2].count)});
}

/// Spans [begin, end) of windows, panel by panel.
void WindowSums::run(int64_t begin, int64_t end, float *memory, const float *bias) const {
  const float *filters = nullptr;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t number = i / spans(), group = number / panels, column = number % panels * nr,
                  first = i % spans() * span;
    if (!filters || !first)
      filters = pack(number, memory);
    for (const Part &part : parts) {
      Windows own = part.windows;
      own.image += group * channels * (byLines ? own.planePitch : 1);
      own.filters = filters, own.taps = part.taps.data();
      own.columns = std::min(nr, columns - column);
      own.bias = bias ? bias + group * columns + column : nullptr;
      own.to = static_cast<char *>(own.to) + (group * columns + column) * sizeOf(resultType);
      (byLines ? gemmKernels().lines : gemmKernels().windows)(own, first, std::min(part.rows, first + span));
    }
  }
}

int32_t byWindows(mpt_exec *exec, const mpt_conv_desc &d, const void *bias, const void *source, const void *w,
                  char *result) {
  WindowSums sums(d, exec, source, w);
  const int64_t biases = d.bias_type ? sums.results + sums.nr : 0, lines = d.n * sums.padded[0] * sums.padded[1],
                image = sums.copies() ? rounded(lines * sums.line * 4) : 0;
  ScratchLease scratch(exec);
  auto *memory = static_cast<char *>(scratch.get(image + biases * 4 + 64));
  if (!memory)
    return noMemory();
  sums.image = image ? reinterpret_cast<float *>(memory) : static_cast<float *>(const_cast<void *>(source));
  auto *wide = biases ? reinterpret_cast<float *>(memory + image) : nullptr;
  if (wide) {
    std::fill_n(wide, biases, 0.0F);
    gemmKernels().widen(d.bias_type, bias, sums.results, wide);
  }
  for (int64_t r0 = 0; r0 < sums.remainders(0); ++r0)
    for (int64_t r1 = 0; r1 < sums.remainders(1); ++r1)
      for (int64_t r2 = 0; r2 < sums.remainders(2); ++r2)
        sums.addPart({axisOf(d, 0, r0), axisOf(d, 1, r1), axisOf(d, 2, r2)}, result);
  bool outOfMemory = false;
  // Calls fn(begin, end, memory) on all threads, each with `bytes` of its own.
  auto withMemory = [&](int64_t bytes, int64_t count, int64_t grain, auto fn) {
    onThreads(exec, count, grain, [&](int64_t begin, int64_t end) {
      if (auto *own = static_cast<float *>(ownMemory.get(bytes)))
        fn(begin, end, own);
      else
        __atomic_store_n(&outOfMemory, true, __ATOMIC_RELAXED);
    });
  };
  if (image)
    withMemory(sums.padded[2] * sums.sources * 4, lines, 1 + (1 << 14) / sums.line,
               [&](int64_t begin, int64_t end, float *own) { sums.padLines(begin, end, own); });
  withMemory(2 * sums.panel * 4, d.groups * sums.panels * sums.spans(), 1 + (1 << 18) / (sums.span * sums.panel),
             [&](int64_t begin, int64_t end, float *own) { sums.run(begin, end, own, wide); });
  if (outOfMemory)
    return noMemory();
  return MPT_OK;
}

} // namespace

int32_t mpt::rt::convOwn(mpt_exec *exec, const mpt_conv_desc &d, const void *bias, void *x, void *w, void *y) {
  if (d.kind == MPT_CONV_BACKWARD_WEIGHTS)
    return weightsByColumns(exec, d, x, w, y);
  const bool forward = d.kind == MPT_CONV_FORWARD;
  if (forward && d.groups > 1 && d.groups == d.ic && d.ic == d.oc)
    return byChannels(exec, d, bias, x, w, y);
  return byWindows(exec, d, bias, forward ? x : y, w, static_cast<char *>(forward ? y : x));
}
