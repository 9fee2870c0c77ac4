// SPDX-License-Identifier: Apache-2.0
// Convolutions without cuDNN: implicit GEMM or columns, as they were measured.
#include "cuda/Blas.h"
#include "cuda/Convolutions.h"

#include <cstring>

using namespace mpt::rt;

namespace {

struct AloneSite : SiteCache {
  mpt_conv_desc desc;
  bool implicit = false;
  std::unique_ptr<SiteCache> kept;
};

using Way = decltype(&convByColumns);

/// Takes implicit GEMM where nothing can or need be measured.
bool isImplicitFaster(const mpt_exec *exec, const mpt_conv_desc &d, void *x, void *w, void *y) {
  CudaDevice &device = deviceOf(exec);
  const Effort search = device.options.search;
  if (device.capturing)
    return true;
  BlasLibrary *blas = device.blas(); // which columns are multiplied by
  const std::string maker = blas ? blas->maker : device.name, key = "conv alone " + wordsOf(d);
  if (const std::string *known = device.chosen.find(maker, key, search))
    return *known == "implicit";
  bool isFaster = true;
  if (search != Effort::Off) {
    auto measure = [&](Way way) {
      std::unique_ptr<SiteCache> site;
      return device.fastest(2, [&] { return way(exec, site, d, x, w, y) == MPT_OK; });
    };
    float implicit = measure(convImplicit), columns = measure(convByColumns);
    isFaster = columns < 0 || (implicit >= 0 && implicit <= columns);
  }
  device.chosen.remember(maker, key, search, isFaster ? "implicit" : "columns");
  return isFaster;
}

} // namespace

mpt_status mpt::rt::convAlone(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, void *x,
                              void *w, void *y) {
  auto *site = static_cast<AloneSite *>(slot.get());
  if (!site || memcmp(&site->desc, &d, sizeof d) != 0) {
    ConvWay way = deviceOf(exec).options.convolutions;
    auto fresh = std::make_unique<AloneSite>();
    fresh->desc = d;
    fresh->implicit = way != ConvWay::Columns && hasImplicitKernel(deviceOf(exec), d, x, w, y) &&
                      (way == ConvWay::Implicit || isImplicitFaster(exec, d, x, w, y));
    site = fresh.get();
    slot = std::move(fresh);
  }
  return (site->implicit ? convImplicit : convByColumns)(exec, site->kept, d, x, w, y);
}
