// SPDX-License-Identifier: Apache-2.0
// Convolutions without cuDNN: directly, by implicit GEMM or by columns, as they were measured.
#include "cuda/Blas.h"
#include "cuda/Convolutions.h"

#include <cstring>

using namespace mpt::rt;

namespace {

struct Way {
  const char *name;
  decltype(&convByColumns) run;
};
constexpr Way direct{"direct", convDirect}, implicit{"implicit", convImplicit}, columns{"columns", convByColumns};

struct AloneSite : SiteCache {
  mpt_conv_desc desc;
  const Way *way = nullptr;
  std::unique_ptr<SiteCache> kept;
};

/// Ways that the library and option `convolutions` allow, the likely fastest first.
std::vector<const Way *> waysFor(const CudaDevice &device, const mpt_conv_desc &d, void *x, void *w, void *y) {
  const ConvWay wanted = device.options.convolutions;
  std::vector<const Way *> ways;
  if (wanted != ConvWay::Columns && wanted != ConvWay::Implicit && hasDirectKernel(device, d, x, w, y))
    ways.push_back(&direct);
  if (wanted == ConvWay::Direct && !ways.empty())
    return ways;
  if (wanted != ConvWay::Columns && hasImplicitKernel(device, d, x, w, y))
    ways.push_back(&implicit);
  if (wanted != ConvWay::Implicit || ways.empty())
    ways.push_back(&columns);
  return ways;
}

/// The fastest of several ways; the first where nothing can or need be measured.
const Way *fastestOf(const std::vector<const Way *> &ways, const mpt_exec *exec, const mpt_conv_desc &d, void *x,
                     void *w, void *y) {
  CudaDevice &device = deviceOf(exec);
  const Effort search = device.options.search;
  if (device.capturing || ways.size() == 1)
    return ways.front();
  BlasLibrary *blas = device.blas(); // which columns are multiplied by
  const std::string maker = blas ? blas->maker : device.name, key = "conv alone " + wordsOf(d);
  if (const std::string *known = device.chosen.find(maker, key, search))
    for (const Way *way : ways)
      if (*known == way->name)
        return way;
  const Way *best = nullptr;
  float least = -1;
  for (const Way *way : ways) {
    if (search == Effort::Off)
      break;
    std::unique_ptr<SiteCache> site;
    const float time = device.fastest(2, [&] { return way->run(exec, site, d, x, w, y) == MPT_OK; });
    if (time >= 0 && (least < 0 || time < least)) {
      least = time;
      best = way;
    }
  }
  if (!best)
    best = ways.front();
  device.chosen.remember(maker, key, search, best->name);
  return best;
}

} // namespace

mpt_status mpt::rt::convAlone(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, void *x,
                              void *w, void *y) {
  auto *site = static_cast<AloneSite *>(slot.get());
  if (!site || memcmp(&site->desc, &d, sizeof d) != 0) {
    auto fresh = std::make_unique<AloneSite>();
    fresh->desc = d;
    fresh->way = fastestOf(waysFor(deviceOf(exec), d, x, w, y), exec, d, x, w, y);
    site = fresh.get();
    slot = std::move(fresh);
  }
  return site->way->run(exec, site->kept, d, x, w, y);
}
