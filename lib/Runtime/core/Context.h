// SPDX-License-Identifier: Apache-2.0
// The context that mpt_exec.runtime points to: the thread count and the data that library calls keep between calls.
#ifndef MPT_RUNTIME_CORE_CONTEXT_H
#define MPT_RUNTIME_CORE_CONTEXT_H

#include "mpt-c/abi.h"

#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>

namespace mpt::rt {

/// The cache of one call site (a compiled primitive). A call site's descriptor is constant in emitted code.
struct SiteCache {
  virtual ~SiteCache() = default;
};

/// Grow-only memory of whole pages, straight from the system: outgrown memory goes back at once. Its contents do not
/// survive a call to get.
class Scratch {
  void *memory = nullptr;
  int64_t bytes = 0;

  void release() {
    if (memory)
      munmap(memory, static_cast<size_t>(bytes));
    memory = nullptr;
    bytes = 0;
  }

public:
  Scratch() = default;
  Scratch(const Scratch &) = delete;
  ~Scratch() { release(); }
  int64_t size() const { return bytes; }
  /// Null when there is no memory.
  void *get(int64_t want) {
    if (bytes < want) {
      release();
      int64_t whole = (want + 4095) / 4096 * 4096;
      void *fresh =
          mmap(nullptr, static_cast<size_t>(whole), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (fresh == MAP_FAILED)
        return nullptr;
      memory = fresh;
      bytes = whole;
    }
    return memory;
  }
};

/// Scratch of library calls, which may call each other: each holds memory of its own until it returns.
class ScratchStack {
  friend class ScratchLease;
  std::vector<std::unique_ptr<Scratch>> levels; // the outermost call first
  size_t held = 0;

public:
  int64_t size() const {
    int64_t sum = 0;
    for (const std::unique_ptr<Scratch> &level : levels)
      sum += level->size();
    return sum;
  }
};

/// Hears of outputs that are complete while the function still runs.
class OutputListener {
public:
  virtual void ready(int64_t output) = 0;

protected:
  ~OutputListener() = default;
};

class Device;
class Profile;
class FiniteCheck;

/// The way in which a call of a function computes, where there are several.
struct CallWay {
  int64_t call;
  const char *way;
};

struct Context {
  int threads = 1;
  Profile *profile = nullptr;
  FiniteCheck *finite = nullptr; // of libraries compiled with --debug-nonfinite
  std::vector<std::unique_ptr<SiteCache>> sites;
  ScratchStack *scratch = nullptr; // of library calls
  Device *device = nullptr;
  const mpt_function_desc *function = nullptr;
  OutputListener *listener = nullptr; // of the function "replica"
  // Of devices that calls do not wait for:
  int64_t nextCall = 0;                 // number of the next call in `function`
  bool watched = false;                 // every call is waited for
  std::vector<void *> *marks = nullptr; // events behind calls, for a profile
  const char *way = nullptr;            // how the present call computes, where there are several ways
  std::vector<CallWay> ways;            // with the marks
};

/// Memory of one library call, which the calls inside it cannot get. The context keeps it for the next call; without a
/// context it goes with the lease.
class ScratchLease {
  ScratchStack *stack = nullptr;
  Scratch own, *memory = &own;

public:
  explicit ScratchLease(const mpt_exec *exec) {
    auto *context = exec ? static_cast<Context *>(exec->runtime) : nullptr;
    if (!context || !context->scratch)
      return;
    stack = context->scratch;
    if (stack->held == stack->levels.size())
      stack->levels.push_back(std::make_unique<Scratch>());
    memory = stack->levels[stack->held++].get();
  }
  ScratchLease(const ScratchLease &) = delete;
  ~ScratchLease() {
    if (stack)
      --stack->held;
  }
  /// As Scratch::get.
  void *get(int64_t bytes) { return memory->get(bytes); }
};

/// Threads to use for `exec`; OpenMP's number where there is no context.
int threadsOf(const mpt_exec *exec);

/// The place of a call site's cache, or null where there is none (then nothing is kept).
inline std::unique_ptr<SiteCache> *slotOf(const mpt_exec *exec, int64_t site) {
  auto *context = exec ? static_cast<Context *>(exec->runtime) : nullptr;
  if (!context || site < 0 || site >= static_cast<int64_t>(context->sites.size()))
    return nullptr;
  return &context->sites[static_cast<size_t>(site)];
}

/// Calls fn(data, task) for every task in [0, tasks), on up to `tasks` threads.
void runTasks(int tasks, void (*fn)(void *data, int task), void *data);

} // namespace mpt::rt

#endif
