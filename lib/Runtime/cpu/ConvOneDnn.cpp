// SPDX-License-Identifier: Apache-2.0
// Convolution and its two gradients through oneDNN, channels-last data and ONNX's weight layout.
#include "cpu/Gemm.h"
#include "cpu/OneDnn.h"

#include "core/Error.h"
#include "core/Types.h"

#include <algorithm>
#include <exception>

using namespace mpt::rt;
using dnnl::memory;

namespace {

/// A compiled convolution and the layouts that oneDNN chose for it.
struct ConvSite : SiteCache {
  mpt_conv_desc desc;
  int threads;
  dnnl::primitive conv, reorder; // reorder: weights to the chosen layout (or back); empty when they agree
  memory::desc x, y, w, userW, bias, scratchpad;
};

/// The number of spatial dimensions that matter, at least one.
int spatialRank(const mpt_conv_desc &d) {
  for (int i = 0; i < 2; ++i)
    if (d.in[i] != 1 || d.out[i] != 1 || d.kernel[i] != 1 || d.pad_low[i] || d.pad_high[i])
      return 3 - i;
  return 1;
}

memory::dims tailOf(const int64_t (&values)[3], int rank, int64_t minus = 0) {
  memory::dims dims;
  for (int i = 3 - rank; i < 3; ++i)
    dims.push_back(values[i] - minus);
  return dims;
}

memory::desc channelsLast(int64_t n, int64_t channels, const int64_t (&extent)[3], int rank, memory::data_type type) {
  memory::dims dims{n, channels}, strides(static_cast<size_t>(rank) + 2);
  for (int64_t e : tailOf(extent, rank))
    dims.push_back(e);
  int64_t stride = channels;
  strides[1] = 1;
  for (size_t i = static_cast<size_t>(rank) + 1; i >= 2; --i) {
    strides[i] = stride;
    stride *= dims[i];
  }
  strides[0] = stride;
  return memory::desc(dims, type, strides);
}

int64_t elements(const mpt_conv_desc &d, char tensor) {
  int64_t count = tensor == 'x' ? d.n * d.ic : tensor == 'y' ? d.n * d.oc : d.oc * (d.ic / d.groups);
  for (int i = 0; i < 3; ++i)
    count *= tensor == 'x' ? d.in[i] : tensor == 'y' ? d.out[i] : d.kernel[i];
  return count;
}

/// Builds the primitive for a description whose types oneDNN takes. Throws dnnl::error.
void build(ConvSite &site) {
  const mpt_conv_desc &d = site.desc;
  int rank = spatialRank(d);
  memory::dims weights{d.oc / d.groups, d.ic / d.groups};
  if (d.groups > 1)
    weights.insert(weights.begin(), d.groups);
  for (int64_t k : tailOf(d.kernel, rank))
    weights.push_back(k);
  memory::dims dense(weights.size());
  int64_t stride = 1;
  for (size_t i = weights.size(); i-- > 0; stride *= weights[i])
    dense[i] = stride;
  site.userW = memory::desc(weights, oneDnnType(d.w_type), dense);
  memory::desc anyW(weights, oneDnnType(d.w_type), memory::format_tag::any);
  site.x = channelsLast(d.n, d.ic, d.in, rank, oneDnnType(d.x_type));
  site.y = channelsLast(d.n, d.oc, d.out, rank, oneDnnType(d.y_type));
  bool bias = d.kind == MPT_CONV_FORWARD && d.bias_type;
  if (bias)
    site.bias = memory::desc({d.oc}, oneDnnType(d.bias_type), memory::dims{1});
  memory::dims strides = tailOf(d.stride, rank), dilation = tailOf(d.dilation, rank, 1), low = tailOf(d.pad_low, rank),
               high = tailOf(d.pad_high, rank);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  auto algorithm = dnnl::algorithm::convolution_direct;
  dnnl::engine &engine = cpuEngine();
  auto forward = [&](const dnnl::primitive_attr &attr) {
    return dnnl::convolution_forward::primitive_desc(engine, dnnl::prop_kind::forward_training, algorithm, site.x, anyW,
                                                     site.bias, site.y, strides, dilation, low, high, attr);
  };
  if (d.kind == MPT_CONV_FORWARD) {
    if (d.flags & MPT_GEMM_RELU) {
      dnnl::post_ops ops;
      ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
      attr.set_post_ops(ops);
    }
    auto pd = forward(attr);
    site.w = pd.weights_desc();
    site.scratchpad = pd.scratchpad_desc();
    site.conv = dnnl::convolution_forward(pd);
  } else if (d.kind == MPT_CONV_BACKWARD_DATA) {
    dnnl::convolution_backward_data::primitive_desc pd(engine, algorithm, site.x, anyW, site.y, strides, dilation, low,
                                                       high, forward({}), attr);
    site.w = pd.weights_desc();
    site.scratchpad = pd.scratchpad_desc();
    site.conv = dnnl::convolution_backward_data(pd);
  } else {
    dnnl::convolution_backward_weights::primitive_desc pd(engine, algorithm, site.x, anyW, site.y, strides, dilation,
                                                          low, high, forward({}), attr);
    site.w = pd.diff_weights_desc();
    site.scratchpad = pd.scratchpad_desc();
    site.conv = dnnl::convolution_backward_weights(pd);
  }
  if (site.w != site.userW) {
    bool back = d.kind == MPT_CONV_BACKWARD_WEIGHTS;
    site.reorder = dnnl::reorder(
        dnnl::reorder::primitive_desc(engine, back ? site.w : site.userW, engine, back ? site.userW : site.w));
  }
}

/// Runs a built convolution.
mpt_status execute(ConvSite &site, ScratchLease &&scratch, const void *bias, void *x, void *w, void *y) {
  auto round = [](size_t bytes) { return (static_cast<int64_t>(bytes) + 63) / 64 * 64; };
  int64_t padBytes = round(site.scratchpad.get_size()), weightBytes = site.reorder ? round(site.w.get_size()) : 0;
  auto *pool = static_cast<char *>(scratch.get(padBytes + weightBytes + 64));
  if (!pool)
    return fail(MPT_OUT_OF_MEMORY, "convolution: no memory for %lld bytes of scratch",
                static_cast<long long>(padBytes + weightBytes));
  dnnl::engine &engine = cpuEngine();
  dnnl::stream stream(engine);
  memory userW(site.userW, engine, w), packedW = site.reorder ? memory(site.w, engine, pool + padBytes) : userW;
  memory mx(site.x, engine, x), my(site.y, engine, y), pad(site.scratchpad, engine, pool);
  int kind = static_cast<int>(site.desc.kind);
  if (site.reorder && kind != MPT_CONV_BACKWARD_WEIGHTS)
    site.reorder.execute(stream, {{DNNL_ARG_FROM, userW}, {DNNL_ARG_TO, packedW}});
  std::unordered_map<int, memory> args{
      {kind == MPT_CONV_BACKWARD_DATA ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, mx},
      {kind == MPT_CONV_BACKWARD_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, packedW},
      {kind == MPT_CONV_FORWARD ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, my},
      {DNNL_ARG_SCRATCHPAD, pad}};
  if (kind == MPT_CONV_FORWARD && site.desc.bias_type)
    args.emplace(DNNL_ARG_BIAS, memory(site.bias, engine, const_cast<void *>(bias)));
  site.conv.execute(stream, args);
  if (site.reorder && kind == MPT_CONV_BACKWARD_WEIGHTS)
    site.reorder.execute(stream, {{DNNL_ARG_FROM, packedW}, {DNNL_ARG_TO, userW}});
  stream.wait();
  return MPT_OK;
}

/// Converts a whole array on all threads. One of the two types is FP32.
void convert(mpt_exec *exec, int64_t from, const void *in, int64_t to, void *out, int64_t count) {
  struct Types {
    int64_t from, to;
  } types{from, to};
  void *args[] = {const_cast<void *>(in), out, &types};
  mpt_rt_parallel(
      exec,
      [](void *const *args, int64_t begin, int64_t end) {
        auto &types = *static_cast<Types *>(args[2]);
        const char *in = static_cast<const char *>(args[0]) + begin * sizeOf(types.from);
        char *out = static_cast<char *>(args[1]) + begin * sizeOf(types.to);
        if (types.to == MPT_FLOAT32)
          gemmKernels().widen(types.from, in, end - begin, reinterpret_cast<float *>(out));
        else
          gemmKernels().narrow(types.to, reinterpret_cast<const float *>(in), end - begin, out);
      },
      args, count, 1 << 15);
}

/// x[.., c] += bias[c], for the transposed convolution.
void addBias(mpt_exec *exec, const float *bias, float *x, int64_t rows, int64_t channels) {
  void *args[] = {const_cast<float *>(bias), x, &channels};
  mpt_rt_parallel(
      exec,
      [](void *const *args, int64_t begin, int64_t end) {
        int64_t channels = *static_cast<int64_t *>(args[2]);
        const float *bias = static_cast<const float *>(args[0]);
        for (int64_t i = begin; i < end; ++i) {
          float *row = static_cast<float *>(args[1]) + i * channels;
          for (int64_t c = 0; c < channels; ++c)
            row[c] += bias[c];
        }
      },
      args, rows, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(channels, 1)));
}

mpt_status run(mpt_exec *exec, int64_t number, const mpt_conv_desc &d, const void *bias, void *x, void *w, void *y) {
  ThreadScope threads(exec);
  std::unique_ptr<SiteCache> local, *slot = slotOf(exec, number);
  if (!slot)
    slot = &local;
  auto *site = static_cast<ConvSite *>(slot->get());
  if (!site || site->threads != threadsOf(exec) || memcmp(&site->desc, &d, sizeof d) != 0) {
    auto fresh = std::make_unique<ConvSite>();
    fresh->desc = d;
    fresh->threads = threadsOf(exec);
    build(*fresh);
    site = fresh.get();
    *slot = std::move(fresh);
  }
  return execute(*site, ScratchLease(exec), bias, x, w, y);
}

} // namespace

bool mpt::rt::oneDnnNative(int64_t dtype) {
  static const bool bf16 =
      static_cast<int>(dnnl::get_effective_cpu_isa()) >= static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return dtype == MPT_FLOAT32 || (dtype == MPT_BFLOAT16 && bf16);
}

bool mpt::rt::convOneDnn(mpt_exec *exec, int64_t site, const mpt_conv_desc &desc, const void *bias, void *x, void *w,
                         void *y, void *workspace, int32_t &status) {
  mpt_conv_desc d = desc;
  bool native = oneDnnNative(d.x_type) && d.w_type == d.x_type && d.y_type == d.x_type;
  bool late = d.bias_type && d.kind == MPT_CONV_BACKWARD_DATA;
  if (late && native && d.x_type != MPT_FLOAT32)
    return false;
  if (!native && d.workspace_bytes < mpt_conv_workspace(&d, 0)) {
    status = fail(MPT_INTERNAL, "convolution: expected %lld bytes of workspace, got %lld",
                  static_cast<long long>(mpt_conv_workspace(&d, 0)), static_cast<long long>(d.workspace_bytes));
    return true;
  }
  try {
    Scratch wideBias;
    auto widenBias = [&](int64_t channels) {
      if (bias && d.bias_type && d.bias_type != MPT_FLOAT32) {
        auto *wide = static_cast<float *>(wideBias.get(channels * 4));
        gemmKernels().widen(d.bias_type, bias, channels, wide);
        bias = wide;
        d.bias_type = MPT_FLOAT32;
      }
    };
    if (d.bias_type && d.kind != MPT_CONV_BACKWARD_WEIGHTS)
      widenBias(d.kind == MPT_CONV_FORWARD ? d.oc : d.ic);
    // Narrow tensors pass through FP32 copies in the workspace, in the order that mpt_conv_workspace counts them.
    char *next = static_cast<char *>(workspace);
    void *wide[3] = {x, y, w}, *user[3] = {x, y, w};
    int64_t *types[3] = {&d.x_type, &d.y_type, &d.w_type}, before[3] = {d.x_type, d.y_type, d.w_type};
    const int written = d.kind == MPT_CONV_FORWARD ? 1 : d.kind == MPT_CONV_BACKWARD_DATA ? 0 : 2;
    for (int i = 0; i < 3 && !native; ++i) {
      int64_t count = elements(d, "xyw"[i]);
      if (before[i] == MPT_FLOAT32)
        continue;
      wide[i] = next;
      next += (count * 4 + 63) / 64 * 64;
      if (i != written)
        convert(exec, before[i], user[i], MPT_FLOAT32, wide[i], count);
      *types[i] = MPT_FLOAT32;
    }
    status = run(exec, site, d, bias, wide[0], wide[2], wide[1]);
    if (status)
      return true;
    if (late)
      addBias(exec, static_cast<const float *>(bias), static_cast<float *>(wide[0]), elements(d, 'x') / d.ic, d.ic);
    if (wide[written] != user[written])
      convert(exec, MPT_FLOAT32, wide[written], before[written], user[written], elements(d, "xyw"[written]));
  } catch (const dnnl::error &e) {
    if (e.status == dnnl_unimplemented)
      return false;
    status =
        fail(e.status == dnnl_out_of_memory ? MPT_OUT_OF_MEMORY : MPT_INVALID_ARGUMENT, "convolution: %s", e.what());
  } catch (const std::exception &e) {
    status = fail(MPT_INTERNAL, "convolution: %s", e.what());
  }
  return true;
}
