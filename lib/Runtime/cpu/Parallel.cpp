// SPDX-License-Identifier: Apache-2.0
// Parallel loops, copies and fills over libgomp's thread pool.
#include "core/Context.h"
#include "core/Profile.h"

#include "mpt-c/abi_recurrence.h"

#include <algorithm>
#include <cstring>

// The stable entry points of libgomp (LLVM's OpenMP runtime offers the same); declared here so that any compiler can
// build the runtime whatever OpenMP library its own -fopenmp would bring.
extern "C" {
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_get_max_threads(void);
int omp_in_parallel(void);
}

namespace mpt::rt {

int threadsOf(const mpt_exec *exec) {
  auto *context = exec ? static_cast<Context *>(exec->runtime) : nullptr;
  return std::max(1, context ? context->threads : omp_get_max_threads());
}

void runTasks(int tasks, void (*fn)(void *, int), void *data) {
  struct Team {
    void (*fn)(void *, int);
    void *data;
    int tasks;
  } team{fn, data, tasks};
  if (tasks <= 1 || omp_in_parallel()) {
    for (int t = 0; t < tasks; ++t)
      fn(data, t);
    return;
  }
  GOMP_parallel(
      [](void *p) {
        auto *team = static_cast<Team *>(p);
        // The team may be smaller than asked for; the split into tasks stays the same.
        for (int t = omp_get_thread_num(), step = omp_get_num_threads(); t < team->tasks; t += step)
          team->fn(team->data, t);
      },
      &team, static_cast<unsigned>(tasks), 0);
}

} // namespace mpt::rt

using namespace mpt::rt;

static void parallel(mpt_exec *exec, mpt_kernel kernel, void *const *args, int64_t n, int64_t grain) {
  if (n <= 0)
    return;
  grain = std::max<int64_t>(grain, 1);
  struct Loop {
    mpt_kernel kernel;
    void *const *args;
    int64_t n, grain, units;
    int64_t tasks;
  } loop{kernel, args, n, grain, (n + grain - 1) / grain, 1};
  loop.tasks = std::min<int64_t>(threadsOf(exec), loop.units);
  if (loop.tasks <= 1)
    return kernel(args, 0, n);
  runTasks(
      static_cast<int>(loop.tasks),
      [](void *p, int t) {
        auto &loop = *static_cast<Loop *>(p);
        int64_t begin = loop.units * t / loop.tasks * loop.grain;
        int64_t end = std::min(loop.units * (t + 1) / loop.tasks * loop.grain, loop.n);
        if (begin < end)
          loop.kernel(loop.args, begin, end);
      },
      &loop);
}

extern "C" void mpt_rt_parallel(mpt_exec *exec, mpt_kernel kernel, void *const *args, int64_t n, int64_t grain) {
  ProfiledCall call(exec);
  parallel(exec, kernel, args, n, grain);
}

/// Below this a second thread costs more than it brings.
static constexpr int64_t copyGrain = 256 * 1024;

extern "C" void mpt_rt_copy(mpt_exec *exec, void *dst, const void *src, int64_t bytes) {
  ProfiledCall call(exec);
  void *args[] = {dst, const_cast<void *>(src)};
  parallel(
      exec,
      [](void *const *a, int64_t b, int64_t e) {
        memcpy(static_cast<char *>(a[0]) + b, static_cast<const char *>(a[1]) + b, static_cast<size_t>(e - b));
      },
      args, bytes, copyGrain);
}

extern "C" void mpt_rt_repeat(mpt_exec *exec, int64_t call) {
  auto *context = exec ? static_cast<Context *>(exec->runtime) : nullptr;
  if (context && context->profile)
    context->profile->goOnFrom(call);
}

extern "C" void mpt_rt_zero(mpt_exec *exec, void *dst, int64_t bytes) {
  ProfiledCall call(exec);
  void *args[] = {dst};
  parallel(
      exec,
      [](void *const *a, int64_t b, int64_t e) {
        memset(static_cast<char *>(a[0]) + b, 0, static_cast<size_t>(e - b));
      },
      args, bytes, copyGrain);
}
