// SPDX-License-Identifier: Apache-2.0
// mpt_cuda_conv: convolutions through cuDNN where it is present and has a deterministic engine, else without it. Of
// depthwise ones the direct kernel is the other candidate.
#include "cuda/ConvGraph.h"
#include "cuda/PlanCache.h"

#include "core/Types.h"

#include <cstring>

using namespace mpt::rt;

namespace {

/// One convolution of the model: a graph of cuDNN's, or another way in its place.
struct ConvSite : SiteCache {
  mpt_conv_desc desc;
  std::shared_ptr<GraphPlan> plan;
  std::unique_ptr<SiteCache> otherwise; // where cuDNN has none, or another way is faster
};

/// cuDNN for a convolution of these operands; null where it is not to be asked.
ConvLibrary *libraryFor(CudaDevice &device, const std::vector<void *> &pointers) {
  if (device.options.convolutions > ConvWay::Library || !areAligned(pointers))
    return nullptr;
  ConvLibrary *library = device.convolutions();
  return library && library->graphs ? library : nullptr;
}

mpt_status check(const mpt_conv_desc &d) {
  if (d.groups < 1 || d.ic % d.groups || d.oc % d.groups || d.kind < 0 || d.kind > 2)
    return fail(MPT_INVALID_ARGUMENT, "convolution: expected %lld groups to divide %lld and %lld channels",
                static_cast<long long>(d.groups), static_cast<long long>(d.ic), static_cast<long long>(d.oc));
  return MPT_OK;
}

/// One call of the model that computes a convolution, by itself or with sums.
class ConvCall {
public:
  /// `pointers` as the request's plans want them; the first three are x, w and y.
  ConvCall(const mpt_exec *exec, const mpt_conv_desc &desc, ConvRequest request, const std::vector<void *> &pointers)
      : exec(exec), device(deviceOf(exec)), d(desc), ask(request), pointers(pointers) {}

  /// Has the plans made that run() will ask for.
  mpt_status expect() const {
    ConvLibrary *library = libraryFor(device, pointers);
    if (!library)
      return MPT_OK;
    if (mpt_status status = check(d))
      return status;
    if (hasDirect()) {
      const std::string *known = device.chosen.find(library->maker, directKey(), device.options.search);
      if (known ? *known == direct : device.options.search == Effort::Off)
        return MPT_OK;
    }
    GraphRequest request = isApart() ? GraphRequest{} : requestBy(ask, *library);
    GraphRequest plain = ask == requestConv ? GraphRequest{} : requestBy(requestConv, *library);
    if (request.forms.empty())
      std::swap(request, plain);
    if (!request.forms.empty())
      library->plans->expect(request, plain);
    return MPT_OK;
  }
  mpt_status run(std::unique_ptr<SiteCache> &slot) const;
  /// `passes`: how often a kernel that makes the sums instead reads a tensor of the result's size.
  mpt_status runWithSums(std::unique_ptr<SiteCache> &slot, int64_t channels, int64_t passes) const;

private:
  /// Whether the direct kernel takes this convolution instead of cuDNN, as the first run measured it; without measuring
  /// it does.
  bool isDirectFaster(ConvLibrary &library) const;
  bool hasDirect() const { return hasDirectKernel(device, d, pointers[0], pointers[1], pointers[2]); }
  /// Depthwise convolutions are made apart from sums, which cuDNN's engines for them do not make in passing.
  bool isApart() const { return ask != requestConv && hasDirect(); }
  static constexpr const char *direct = "direct";
  std::string directKey() const { return "conv direct " + wordsOf(d); }
  GraphRequest requestBy(ConvRequest of, const ConvLibrary &library) const {
    return of(d, library.api.GetVersion(), device.options.tf32);
  }
  ConvSite &site(std::unique_ptr<SiteCache> &slot, const PlanCache::Alternative &otherwise = {}) const;

  const mpt_exec *exec;
  CudaDevice &device;
  const mpt_conv_desc &d;
  const ConvRequest ask;
  const std::vector<void *> &pointers;
};

bool ConvCall::isDirectFaster(ConvLibrary &library) const {
  const Effort search = device.options.search;
  if (!hasDirect() || isApart())
    return isApart();
  if (const std::string *known = device.chosen.find(library.maker, directKey(), search))
    return *known == direct;
  GraphRequest request = requestBy(ask, library);
  bool isFaster = true;
  if (search != Effort::Off && !device.capturing && !request.forms.empty()) {
    std::unique_ptr<SiteCache> site;
    auto fastest = [&](const std::function<bool()> &run) { return device.fastest(2, run); };
    const float own =
        fastest([&] { return convDirect(exec, site, d, pointers[0], pointers[1], pointers[2]) == MPT_OK; });
    std::shared_ptr<GraphPlan> plan = library.plans->find(request, pointers);
    const float other = plan ? fastest([&] { return plan->run(device, pointers) == MPT_OK; }) : -1;
    isFaster = own >= 0 && (other < 0 || own <= other);
  }
  device.chosen.remember(library.maker, directKey(), search, isFaster ? direct : "library");
  return isFaster;
}

ConvSite &ConvCall::site(std::unique_ptr<SiteCache> &slot, const PlanCache::Alternative &otherwise) const {
  auto *site = static_cast<ConvSite *>(slot.get());
  if (site && memcmp(&site->desc, &d, sizeof d) == 0)
    return *site;
  auto fresh = std::make_unique<ConvSite>();
  fresh->desc = d;
  if (ConvLibrary *library = libraryFor(device, pointers); library && !device.capturing && !isDirectFaster(*library))
    if (GraphRequest request = requestBy(ask, *library); !request.forms.empty())
      fresh->plan = library->plans->find(request, pointers, otherwise);
  site = fresh.get();
  slot = std::move(fresh);
  return *site;
}

mpt_status ConvCall::run(std::unique_ptr<SiteCache> &slot) const {
  if (mpt_status status = check(d))
    return status;
  ConvSite &here = site(slot);
  static_cast<Context *>(exec->runtime)->way = here.plan ? "cuDNN" : "own kernels";
  return here.plan ? here.plan->run(device, pointers)
                   : convAlone(exec, here.otherwise, d, pointers[0], pointers[1], pointers[2]);
}

mpt_status ConvCall::runWithSums(std::unique_ptr<SiteCache> &slot, int64_t channels, int64_t passes) const {
  const std::vector<void *> operands(pointers.begin(), pointers.begin() + 3);
  // The convolution by itself, and a kernel that reads its result again.
  auto apart = [&] {
    ConvLibrary &library = *device.convolutions();
    GraphRequest plain = requestBy(requestConv, library);
    const float time = !plain.forms.empty() && library.plans->find(plain, operands) ? library.plans->timeOf(plain) : -1;
    const int64_t positions = d.kind == MPT_CONV_FORWARD ? d.out[0] * d.out[1] * d.out[2] : d.in[0] * d.in[1] * d.in[2];
    const float pass = device.timeOfPass(passes * d.n * channels * positions * sizeOf(d.x_type));
    return time < 0 || pass < 0 ? -1 : time + pass;
  };
  if (mpt_status status = check(d))
    return status;
  ConvSite &here = site(slot, apart);
  static_cast<Context *>(exec->runtime)->way = here.plan ? "cuDNN, with sums" : "a kernel for the sums";
  if (here.plan)
    return here.plan->run(device, pointers);
  // Bytes of ones are NaN: kernels that want the sums compute them.
  cu::Result result =
      device.api.MemsetD8Async(address(pointers[3]), 0xff, static_cast<size_t>(channels) * 8, device.stream);
  if (mpt_status status = cu::check(device.api, result, "convolution with sums"))
    return status;
  return ConvCall(exec, d, requestConv, operands).run(here.otherwise);
}

} // namespace

extern "C" int32_t mpt_cuda_conv(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, const void *bias, void *x,
                                 void *w, void *y, void *) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  const std::vector<void *> pointers{x, w, y};
  ConvCall conv(exec, *desc, requestConv, pointers);
  auto work = [&] {
    return bias || desc->bias_type || desc->flags
               ? fail(MPT_UNSUPPORTED, "convolution: no kernel for a bias or an activation")
               : conv.run(slot ? *slot : none);
  };
  return call.run(work, [&] { return conv.expect(); });
}

extern "C" int32_t mpt_cuda_conv_sums(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, void *x, void *w,
                                      void *y, void *sums) {
  Call call(exec);
  std::unique_ptr<SiteCache> none, *slot = slotOf(exec, site);
  auto *sum = static_cast<float *>(sums);
  const std::vector<void *> pointers{x, w, y, sum, sum + desc->oc};
  ConvCall conv(exec, *desc, requestConvWithSums, pointers);
  return call.run([&] { return conv.runWithSums(slot ? *slot : none, desc->oc, 1); }, [&] { return conv.expect(); });
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
  ConvCall conv(exec, *desc, requestConvWithNormSums, pointers);
  return call.run([&] { return conv.runWithSums(slot ? *slot : none, desc->ic, 2); }, [&] { return conv.expect(); });
}
