// SPDX-License-Identifier: Apache-2.0
// Reading a CUDA trainer's options.
#include "cuda/CudaOptions.h"

#include <cstdlib>

using namespace mpt::rt;

std::string CudaOptions::usualCache() {
  if (const char *cache = getenv("XDG_CACHE_HOME"))
    return std::string(cache) + "/mpt/choices";
  const char *home = getenv("HOME");
  return home ? std::string(home) + "/.cache/mpt/choices" : "";
}

mpt_status CudaOptions::read(Options &options) {
  for (auto [key, member] : {std::pair("driver", &CudaOptions::driver), std::pair("cublaslt", &CudaOptions::cublaslt),
                             std::pair("cudnn", &CudaOptions::cudnn), std::pair("libraries", &CudaOptions::libraries),
                             std::pair("nccl", &CudaOptions::nccl), std::pair("cache", &CudaOptions::cache)})
    if (mpt_status status = options.text(key, this->*member))
      return status;
  for (auto [key, member] :
       {std::pair("ptx", &CudaOptions::ptxOnly), std::pair("synchronous", &CudaOptions::synchronous),
        std::pair("eager", &CudaOptions::eager), std::pair("tf32", &CudaOptions::tf32),
        std::pair("fast-sums", &CudaOptions::fastSums)})
    if (mpt_status status = options.flag(key, this->*member))
      return status;
  int way = 0, effort = static_cast<int>(search);
  if (mpt_status status = options.choice("search", {"off", "quick", "full"}, effort))
    return status;
  search = static_cast<Effort>(effort);
  mpt_status status = options.choice("convolutions", {"any", "cudnn", "implicit", "columns", "direct"}, way);
  convolutions = static_cast<ConvWay>(way);
  return status ? status : options.number("score-bytes", 1, scoreBytes);
}
