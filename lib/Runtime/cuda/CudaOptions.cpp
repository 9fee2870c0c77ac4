// SPDX-License-Identifier: Apache-2.0
// Reading a CUDA trainer's options.
#include "cuda/CudaOptions.h"

#include <cstdlib>

using namespace mpt::rt;

std::string CudaOptions::usualCache() {
  if (const char *cache = getenv("XDG_CACHE_HOME"))
    return std::string(cache) + "/mpt/cublaslt";
  const char *home = getenv("HOME");
  return home ? std::string(home) + "/.cache/mpt/cublaslt" : "";
}

mpt_status CudaOptions::read(Options &options) {
  for (auto [key, member] : {std::pair("driver", &CudaOptions::driver), std::pair("cublaslt", &CudaOptions::cublaslt),
                             std::pair("cudnn", &CudaOptions::cudnn), std::pair("cache", &CudaOptions::cache)})
    if (mpt_status status = options.text(key, this->*member))
      return status;
  for (auto [key, member] :
       {std::pair("search", &CudaOptions::search), std::pair("ptx", &CudaOptions::ptxOnly),
        std::pair("synchronous", &CudaOptions::synchronous), std::pair("eager", &CudaOptions::eager)})
    if (mpt_status status = options.flag(key, this->*member))
      return status;
  int way = 0;
  mpt_status status = options.choice("convolutions", {"any", "cudnn", "implicit", "columns"}, way);
  convolutions = static_cast<ConvWay>(way);
  return status ? status : options.number("score-bytes", 1, scoreBytes);
}
