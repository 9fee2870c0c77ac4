// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions by the direct kernels that emitted libraries carry, one a shape.
#include "cuda/Convolutions.h"
#include "mpt-c/conv_direct.hpp"

#include "core/Types.h"

#include <cstring>
#include <string>

using namespace mpt::rt;
using namespace mpt;

namespace {

struct DirectSite : SiteCache {
  mpt_conv_desc desc;
  int64_t kernel = -1, sum = -1;
  int64_t slices = 1, results = 0;
  std::unique_ptr<Memory> sumWords;
};

mpt_status prepare(CudaDevice &device, DirectSite &site) {
  const mpt_conv_desc &d = site.desc;
  site.kernel = device.kernelNumber(conv::directName(d).c_str());
  if (d.kind != MPT_CONV_BACKWARD_WEIGHTS)
    return MPT_OK;
  site.sum = device.kernelNumber((std::string("mpt_slices_") + suffixOf(d.w_type)).c_str());
  site.slices = conv::directShape(d).slices;
  site.results = d.oc * d.kernel[0] * d.kernel[1] * d.kernel[2];
  const int64_t sums[] = {site.results, site.slices};
  return device.place("convolution", sums, sizeof sums, site.sumWords);
}

} // namespace

bool mpt::rt::hasDirectKernel(const CudaDevice &device, const mpt_conv_desc &d, const void *x, const void *w,
                              const void *y) {
  if (!conv::hasDirect(d))
    return false;
  const int64_t bytes = conv::directShape(d).vector * sizeOf(conv::directOperand(d));
  for (const void *pointer : {x, w, y})
    if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes < 16 ? 16 : bytes) != 0)
      return false;
  return device.kernelNumber(conv::directName(d).c_str()) >= 0;
}

mpt_status mpt::rt::convDirect(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, void *x,
                               void *w, void *y) {
  CudaDevice &device = deviceOf(exec);
  auto *site = static_cast<DirectSite *>(slot.get());
  if (!site || memcmp(&site->desc, &d, sizeof d) != 0) {
    auto fresh = std::make_unique<DirectSite>();
    fresh->desc = d;
    if (mpt_status status = prepare(device, *fresh))
      return status;
    site = fresh.get();
    slot = std::move(fresh);
  }
  if (d.kind != MPT_CONV_BACKWARD_WEIGHTS) {
    void *forward[] = {x, w, y}, *data[] = {y, w, x};
    return device.launch(site->kernel, d.kind == MPT_CONV_FORWARD ? forward : data);
  }
  void *sums = device.scratch(site->slices * site->results * 4);
  if (!sums)
    return MPT_OUT_OF_MEMORY;
  void *weights[] = {x, y, sums};
  if (mpt_status status = device.launch(site->kernel, weights))
    return status;
  void *slices[] = {sums, w, site->sumWords->start};
  return device.launch(site->sum, slices);
}
