// SPDX-License-Identifier: Apache-2.0
// mpt_cuda_conv: convolutions through cuDNN where it is present and has a deterministic algorithm, else without it.
#include "cuda/ConvGraph.h"
#include "cuda/Library.h"

#include "core/Types.h"

#include <cstring>

using namespace mpt::rt;

namespace {

struct State {
  dnn::Functions functions{};
  dnn::GraphFunctions graphs{};
  bool ok = false, haveGraphs = false;

  void open(const std::string &file) {
    if (file == "none")
      return;
    cu::Library library;
    ok = library.open("cudnn", file, {"libcudnn.so.9", "libcudnn.so"});
#define MPT_LOAD(name) ok = ok && library.load(functions.name, "cudnn" #name);
    MPT_LOAD(Create)
    MPT_LOAD(Destroy)
    MPT_LOAD(GetVersion)
    MPT_LOAD(GetErrorString)
    MPT_LOAD(SetStream)
    MPT_LOAD(CreateTensorDescriptor)
    MPT_LOAD(SetTensorNdDescriptor)
    MPT_LOAD(DestroyTensorDescriptor)
    MPT_LOAD(CreateFilterDescriptor)
    MPT_LOAD(SetFilterNdDescriptor)
    MPT_LOAD(DestroyFilterDescriptor)
    MPT_LOAD(CreateConvolutionDescriptor)
    MPT_LOAD(SetConvolutionNdDescriptor)
    MPT_LOAD(SetConvolutionGroupCount)
    MPT_LOAD(SetConvolutionMathType)
    MPT_LOAD(DestroyConvolutionDescriptor)
    MPT_LOAD(FindConvolutionForwardAlgorithmEx)
    MPT_LOAD(FindConvolutionBackwardDataAlgorithmEx)
    MPT_LOAD(FindConvolutionBackwardFilterAlgorithmEx)
    MPT_LOAD(ConvolutionForward)
    MPT_LOAD(ConvolutionBackwardData)
    MPT_LOAD(ConvolutionBackwardFilter)
#undef MPT_LOAD
    ok = ok && functions.GetVersion() >= 90000;
    haveGraphs = ok;
#define MPT_LOAD(name) haveGraphs = haveGraphs && library.load(graphs.name, "cudnn" #name);
    MPT_LOAD(BackendCreateDescriptor)
    MPT_LOAD(BackendDestroyDescriptor)
    MPT_LOAD(BackendFinalize)
    MPT_LOAD(BackendSetAttribute)
    MPT_LOAD(BackendGetAttribute)
    MPT_LOAD(BackendExecute)
#undef MPT_LOAD
  }
};

struct ConvSite : SiteCache {
  explicit ConvSite(const dnn::Functions &api) : api(api) {}
  ~ConvSite() override {
    if (x)
      api.DestroyTensorDescriptor(x);
    if (y)
      api.DestroyTensorDescriptor(y);
    if (w)
      api.DestroyFilterDescriptor(w);
    if (conv)
      api.DestroyConvolutionDescriptor(conv);
  }
  const dnn::Functions &api;
  mpt_conv_desc desc;
  dnn::TensorDesc x = nullptr, y = nullptr;
  dnn::FilterDesc w = nullptr;
  dnn::ConvDesc conv = nullptr;
  dnn::Performance chosen{};
  bool refused = false;             // cuDNN has nothing for it
  std::unique_ptr<SiteCache> alone; // then
};

/// A convolution that is a graph of cuDNN's.
struct GraphSite : SiteCache {
  mpt_conv_desc desc;
  std::shared_ptr<GraphPlan> plan;
  std::unique_ptr<SiteCache> alone; // where cuDNN has none
};

/// What cuDNN can be asked: one type, and padding that is the same on both sides as far as it is read.
bool fits(const mpt_conv_desc &d) {
  if (dnnType(d.x_type) < 0 || d.w_type != d.x_type || d.y_type != d.x_type)
    return false;
  for (int i = 0; i < 3; ++i)
    if ((d.in[i] + 2 * d.pad_low[i] - d.dilation[i] * (d.kernel[i] - 1) - 1) / d.stride[i] + 1 != d.out[i])
      return false;
  return true;
}

dnn::Status describe(ConvSite &site) {
  const mpt_conv_desc &d = site.desc;
  const dnn::Functions &api = site.api;
  const int rank = d.in[0] == 1 && d.out[0] == 1 && d.kernel[0] == 1 ? 2 : 3, first = 3 - rank;
  auto number = [](int64_t n) { return static_cast<int>(n); };
  auto data = [&](dnn::TensorDesc &desc, int64_t channels, const int64_t (&extent)[3]) {
    int extents[5] = {number(d.n), number(channels)}, strides[5] = {0, 1};
    int64_t stride = channels;
    for (int i = 2; i >= first; --i) {
      extents[2 + i - first] = number(extent[i]);
      strides[2 + i - first] = number(stride);
      stride *= extent[i];
    }
    strides[0] = number(stride);
    dnn::Status status = api.CreateTensorDescriptor(&desc);
    return status ? status : api.SetTensorNdDescriptor(desc, dnnType(d.x_type), rank + 2, extents, strides);
  };
  if (dnn::Status status = data(site.x, d.ic, d.in))
    return status;
  if (dnn::Status status = data(site.y, d.oc, d.out))
    return status;
  int filter[5] = {number(d.oc), number(d.ic / d.groups)}, pads[3], strides[3], dilations[3];
  for (int i = 0; i < rank; ++i) {
    filter[2 + i] = number(d.kernel[first + i]);
    pads[i] = number(d.pad_low[first + i]);
    strides[i] = number(d.stride[first + i]);
    dilations[i] = number(d.dilation[first + i]);
  }
  if (dnn::Status status = api.CreateFilterDescriptor(&site.w))
    return status;
  if (dnn::Status status = api.SetFilterNdDescriptor(site.w, dnnType(d.w_type), dnn::ChannelsLast, rank + 2, filter))
    return status;
  if (dnn::Status status = api.CreateConvolutionDescriptor(&site.conv))
    return status;
  if (dnn::Status status =
          api.SetConvolutionNdDescriptor(site.conv, rank, pads, strides, dilations, dnn::CrossCorrelation, dnn::Float))
    return status;
  if (dnn::Status status = api.SetConvolutionGroupCount(site.conv, number(d.groups)))
    return status;
  // FP32 stays FP32: no TF32.
  return api.SetConvolutionMathType(site.conv, d.x_type == MPT_FLOAT32 ? dnn::FmaMath : dnn::TensorMath);
}

/// cuDNN tries its default mathematics too, which rounds FP32 operands to TF32.
bool keepsOperands(const ConvSite &site, const dnn::Performance &result) {
  return site.desc.x_type != MPT_FLOAT32 || result.mathType == dnn::FmaMath;
}

/// Measures cuDNN's algorithms on the operands and takes the fastest that gives the same bits every time.
dnn::Status choose(ConvLibrary &library, ConvSite &site, void *x, void *w, void *y, uint8_t *workspace) {
  constexpr int most = 8;
  dnn::Performance results[most];
  int found = 0;
  const dnn::Functions &api = library.api;
  size_t bytes = ConvLibrary::workspaceBytes;
  dnn::Status status =
      site.desc.kind == MPT_CONV_FORWARD
          ? api.FindConvolutionForwardAlgorithmEx(library.handle, site.x, x, site.w, w, site.conv, site.y, y, most,
                                                  &found, results, workspace, bytes)
      : site.desc.kind == MPT_CONV_BACKWARD_DATA
          ? api.FindConvolutionBackwardDataAlgorithmEx(library.handle, site.w, w, site.y, y, site.conv, site.x, x, most,
                                                       &found, results, workspace, bytes)
          : api.FindConvolutionBackwardFilterAlgorithmEx(library.handle, site.x, x, site.y, y, site.conv, site.w, w,
                                                         most, &found, results, workspace, bytes);
  if (status)
    return status;
  for (int i = 0; i < found; ++i)
    if (!results[i].status && results[i].determinism == dnn::Deterministic && results[i].memory <= bytes &&
        keepsOperands(site, results[i])) {
      site.chosen = results[i];
      return api.SetConvolutionMathType(site.conv, results[i].mathType);
    }
  site.refused = true;
  return 0;
}

mpt_status run(CudaDevice &device, ConvLibrary &library, ConvSite &site, void *x, void *w, void *y) {
  const dnn::Functions &api = library.api;
  uint8_t *workspace = device.scratch(static_cast<int64_t>(site.chosen.memory));
  if (!workspace && site.chosen.memory)
    return MPT_OUT_OF_MEMORY;
  float one = 1, zero = 0;
  int algorithm = site.chosen.algorithm;
  dnn::Status status = site.desc.kind == MPT_CONV_FORWARD
                           ? api.ConvolutionForward(library.handle, &one, site.x, x, site.w, w, site.conv, algorithm,
                                                    workspace, site.chosen.memory, &zero, site.y, y)
                       : site.desc.kind == MPT_CONV_BACKWARD_DATA
                           ? api.ConvolutionBackwardData(library.handle, &one, site.w, w, site.y, y, site.conv,
                                                         algorithm, workspace, site.chosen.memory, &zero, site.x, x)
                           : api.ConvolutionBackwardFilter(library.handle, &one, site.x, x, site.y, y, site.conv,
                                                           algorithm, workspace, site.chosen.memory, &zero, site.w, w);
  return status ? fail(MPT_INTERNAL, "convolution: cuDNN: %s", api.GetErrorString(status)) : MPT_OK;
}

/// Null where cuDNN is not to be asked: where the convolution does not `fit` it, or the trainer's options say so.
ConvLibrary *libraryFor(CudaDevice &device, bool fit) {
  return fit && device.options.convolutions <= ConvWay::Library ? device.convolutions() : nullptr;
}

using Planner = std::shared_ptr<GraphPlan> (*)(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &desc,
                                               const std::vector<void *> &pointers);

/// The site of a convolution that `planner` makes a graph of, where it `fit`s.
GraphSite &siteFor(CudaDevice &device, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, bool fit,
                   Planner planner, const std::vector<void *> &pointers) {
  auto *site = static_cast<GraphSite *>(slot.get());
  if (site && memcmp(&site->desc, &d, sizeof d) == 0)
    return *site;
  auto fresh = std::make_unique<GraphSite>();
  fresh->desc = d;
  if (ConvLibrary *library = libraryFor(device, fit); library && !device.capturing)
    fresh->plan = planner(device, *library, d, pointers);
  site = fresh.get();
  slot = std::move(fresh);
  return *site;
}

/// A convolution whose result is wider than its operands.
mpt_status convWide(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, void *x, void *w,
                    void *y) {
  CudaDevice &device = deviceOf(exec);
  GraphSite &site = siteFor(device, slot, d, true, planWideConv, {x, w, y});
  return site.plan ? site.plan->run(device, {x, w, y}) : convAlone(exec, site.alone, d, x, w, y);
}

mpt_status conv(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, const void *bias,
                void *x, void *w, void *y) {
  CudaDevice &device = deviceOf(exec);
  if (bias || d.bias_type || d.flags)
    return fail(MPT_UNSUPPORTED, "convolution: no kernel for a bias or an activation");
  if (d.groups < 1 || d.ic % d.groups || d.oc % d.groups || d.kind < 0 || d.kind > 2)
    return fail(MPT_INVALID_ARGUMENT, "convolution: expected %lld groups to divide %lld and %lld channels",
                static_cast<long long>(d.groups), static_cast<long long>(d.ic), static_cast<long long>(d.oc));
  if (isWideConv(d))
    return convWide(exec, slot, d, x, w, y);
  ConvLibrary *library = libraryFor(device, fits(d));
  if (!library)
    return convAlone(exec, slot, d, x, w, y);
  auto *site = static_cast<ConvSite *>(slot.get());
  if (!site || memcmp(&site->desc, &d, sizeof d) != 0) {
    auto fresh = std::make_unique<ConvSite>(library->api);
    fresh->desc = d;
    uint8_t *workspace = device.scratch(ConvLibrary::workspaceBytes);
    if (!workspace)
      return MPT_OUT_OF_MEMORY;
    // Where cuDNN has no kernel for a case, its functions say so here.
    fresh->refused = describe(*fresh) || choose(*library, *fresh, x, w, y, workspace) || fresh->refused;
    site = fresh.get();
    slot = std::move(fresh);
  }
  if (site->refused)
    return convAlone(exec, site->alone, d, x, w, y);
  return run(device, *library, *site, x, w, y);
}

/// `pointers` as the planner wants them: x, w, y and the first of `channels` FP32 sums of each kind at the start.
mpt_status convSums(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, int64_t channels,
                    Planner planner, const std::vector<void *> &pointers) {
  CudaDevice &device = deviceOf(exec);
  GraphSite &site = siteFor(device, slot, d, fits(d), planner, pointers);
  if (site.plan)
    return site.plan->run(device, pointers);
  // Bytes of ones are NaN: kernels that want the sums compute them.
  cu::Result result =
      device.api.MemsetD8Async(address(pointers[3]), 0xff, static_cast<size_t>(channels) * 8, device.stream);
  if (mpt_status status = cu::check(device.api, result, "convolution with sums"))
    return status;
  return conv(exec, site.alone, d, nullptr, pointers[0], pointers[1], pointers[2]);
}

} // namespace

std::unique_ptr<ConvLibrary> ConvLibrary::open(CudaDevice &device) {
  State &state = cu::openedOnce<State>(device.options.cudnn);
  if (!state.ok)
    return nullptr;
  std::unique_ptr<ConvLibrary> library(new ConvLibrary(state.functions, state.haveGraphs ? &state.graphs : nullptr));
  if (library->api.Create(&library->handle)) {
    library->handle = nullptr;
    return nullptr;
  }
  if (library->api.SetStream(library->handle, device.stream))
    return nullptr;
  return library;
}

ConvLibrary::~ConvLibrary() {
  plans.clear();
  if (handle)
    api.Destroy(handle);
}

extern "C" int32_t mpt_cuda_conv(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, const void *bias, void *x,
                                 void *w, void *y, void *) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  return call.finish(conv(exec, slot ? *slot : none, *desc, bias, x, w, y));
}

extern "C" int32_t mpt_cuda_conv_sums(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, void *x, void *w,
                                      void *y, void *sums) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  auto *sum = static_cast<float *>(sums);
  return call.finish(
      convSums(exec, slot ? *slot : none, *desc, desc->oc, planConvWithSums, {x, w, y, sum, sum + desc->oc}));
}

extern "C" int32_t mpt_cuda_conv_norm_sums(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, void *x, void *w,
                                           void *y, void *sums, const void *input, const void *mean,
                                           const void *inverse, const void *scale, const void *shift) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  auto *sum = static_cast<float *>(sums);
  std::vector<void *> pointers{x, w, y, sum, sum + desc->ic};
  for (const void *part : {input, mean, inverse, scale, shift})
    pointers.push_back(const_cast<void *>(part));
  return call.finish(convSums(exec, slot ? *slot : none, *desc, desc->ic, planConvWithNormSums, pointers));
}
