// SPDX-License-Identifier: Apache-2.0
// Times of runtime calls, collected with option "profile" and printed when the trainer goes.
#ifndef MPT_RUNTIME_CORE_PROFILE_H
#define MPT_RUNTIME_CORE_PROFILE_H

#include "core/Context.h"

#include <string>
#include <vector>

namespace mpt::rt {

/// Times of one function's calls. The first run is left out: it touches memory and builds primitives.
class Profile {
public:
  explicit Profile(const mpt_function_desc &function, int threads);
  void beginRun();
  void endRun();
  /// `way`: the way in which the call computes, where there is a choice.
  void add(double seconds, const char *way = nullptr) {
    if (next < seconds_.size()) {
      ways[next] = way;
      seconds_[next++] += seconds;
    }
  }
  /// The next call is number `call`, as in another pass of a loop.
  void goOnFrom(int64_t call) { next = static_cast<size_t>(call); }
  bool enter() { return depth++ == 0; }
  bool leave() { return --depth == 0; }
  /// CPU time of the calling thread where there is one thread, wall time otherwise, in seconds.
  double now() const;
  /// A table of calls, calls that are alike in one row, the slowest first; empty without runs.
  std::string table(int rows) const;

private:
  const mpt_function_desc &function;
  int threads, runs = -1, depth = 0;
  size_t next = 0;
  double start = 0, total = 0;
  std::vector<double> seconds_;
  std::vector<const char *> ways;
};

/// Adds the life of this object to the profile of `exec`, if it has one. Calls inside a call count as part of it.
class ProfiledCall {
public:
  explicit ProfiledCall(const mpt_exec *exec)
      : profile(exec && exec->runtime ? static_cast<Context *>(exec->runtime)->profile : nullptr),
        start(profile && profile->enter() ? profile->now() : 0) {}
  ProfiledCall(const ProfiledCall &) = delete;
  ~ProfiledCall() {
    if (profile && profile->leave())
      profile->add(profile->now() - start);
  }

private:
  Profile *profile;
  double start;
};

} // namespace mpt::rt

#endif
