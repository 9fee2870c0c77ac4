// SPDX-License-Identifier: Apache-2.0
// Profiles as tables.
#include "core/Profile.h"

#include <algorithm>
#include <ctime>
#include <map>

namespace mpt::rt {

Profile::Profile(const mpt_function_desc &function, int threads)
    : function(function), threads(threads), seconds_(static_cast<size_t>(std::max<int64_t>(function.num_calls, 0))),
      ways(seconds_.size()) {}

double Profile::now() const {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void Profile::beginRun() {
  if (runs == 0) {
    std::fill(seconds_.begin(), seconds_.end(), 0.0);
    total = 0;
  }
  next = 0;
  start = now();
}

void Profile::endRun() {
  total += now() - start;
  ++runs;
}

std::string Profile::table(int rows) const {
  if (runs < 1)
    return {};
  struct Row {
    double seconds = 0, bytes = 0, flops = 0;
    int64_t calls = 0;
    std::string what;
    const char *node = "";
  };
  std::map<std::string, Row> merged;
  double inCalls = 0;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    const mpt_call_desc &call = function.calls[i];
    std::string what = call.what;
    if (ways[i])
      what += std::string(" by ") + ways[i];
    Row &row = merged[what];
    row.seconds += seconds_[i];
    row.bytes += static_cast<double>(call.bytes);
    row.flops += static_cast<double>(call.flops);
    row.what = what;
    if (row.calls++ == 0)
      row.node = call.node;
    inCalls += seconds_[i];
  }
  std::vector<Row> sorted;
  sorted.reserve(merged.size());
  for (auto &[what, row] : merged)
    sorted.push_back(row);
  std::sort(sorted.begin(), sorted.end(), [](const Row &a, const Row &b) { return a.seconds > b.seconds; });
  double perRun = 1.0 / runs;
  char line[512];
  snprintf(line, sizeof line, "%s: %d runs of %.3f ms %s time, %.3f ms in %lld calls\n%6s %9s %6s %7s %8s  %s\n",
           function.name, runs, 1e3 * total * perRun, threads == 1 ? "CPU" : "wall", 1e3 * inCalls * perRun,
           static_cast<long long>(seconds_.size()), "share", "ms", "calls", "GB/s", "GFLOP/s", "what [first node]");
  std::string text = line;
  for (size_t i = 0; i < sorted.size() && i < static_cast<size_t>(rows); ++i) {
    const Row &row = sorted[i];
    double seconds = std::max(row.seconds * perRun, 1e-9);
    snprintf(line, sizeof line, "%5.1f%% %9.3f %6lld %7.1f %8.1f  ", 100 * row.seconds / std::max(total, 1e-9),
             1e3 * seconds, static_cast<long long>(row.calls), 1e-9 * row.bytes / seconds, 1e-9 * row.flops / seconds);
    text += line + row.what + " [" + row.node + "]\n";
  }
  return text;
}

} // namespace mpt::rt
