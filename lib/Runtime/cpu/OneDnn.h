// SPDX-License-Identifier: Apache-2.0
// Shared by calls into oneDNN: the engine, its thread count, and reporting its exceptions as a status.
#ifndef MPT_RUNTIME_CPU_ONEDNN_H
#define MPT_RUNTIME_CPU_ONEDNN_H

#include "core/Context.h"

#include <dnnl.hpp>

extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace mpt::rt {

inline dnnl::engine &cpuEngine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::memory::data_type oneDnnType(int64_t dtype) {
  return dtype == MPT_BFLOAT16  ? dnnl::memory::data_type::bf16
         : dtype == MPT_FLOAT16 ? dnnl::memory::data_type::f16
                                : dnnl::memory::data_type::f32;
}

/// oneDNN takes its thread count from OpenMP's setting for the calling thread.
class ThreadScope {
  int before = omp_get_max_threads(), now;

public:
  explicit ThreadScope(const mpt_exec *exec) : now(threadsOf(exec)) {
    if (now != before)
      omp_set_num_threads(now);
  }
  ~ThreadScope() {
    if (now != before)
      omp_set_num_threads(before);
  }
};

} // namespace mpt::rt

#endif
