// SPDX-License-Identifier: Apache-2.0
// Accesses of streams to device memory, and whether anything orders them.
#include "Order.h"
#include "StandIn.h"

#include <algorithm>
#include <string>
#include <vector>

using namespace standin;

namespace {

struct Access {
  uint64_t begin, end;
  const void *stream;
  uint64_t number; // of the stream's work
  bool writes;
};
std::vector<Access> known; // under the driver's mutex
const void *stream = nullptr;
const Clock *clock = nullptr;

constexpr size_t most = 4096; // the oldest are forgotten: work that far back is over

} // namespace

void Clock::join(const Clock &other) {
  for (auto [stream, number] : other.known)
    known[stream] = std::max(known[stream], number);
}

uint64_t Clock::of(const void *stream) const {
  auto it = known.find(stream);
  return it == known.end() ? 0 : it->second;
}

Working::Working(const void *of, const Clock &at) : outerStream(stream), outerClock(clock) {
  stream = of;
  clock = &at;
}
Working::~Working() {
  stream = outerStream;
  clock = outerClock;
}

void standin::accesses(uint64_t address, int64_t bytes, bool writes, const char *what) {
  if (!clock)
    return;
  const Access now{address, address + static_cast<uint64_t>(bytes), stream, clock->of(stream), writes};
  auto covers = [&](const Access &was) { return was.begin < now.end && now.begin < was.end; };
  for (const Access &was : known)
    if (covers(was) && (was.writes || writes) && was.stream != stream && clock->of(was.stream) < was.number) {
      violation(std::string(what) + " touches memory that another stream " + (was.writes ? "writes" : "reads") +
                ", and nothing orders them");
      break;
    }
  // Accesses inside the new one, of the same stream or written over in order, say nothing more.
  known.erase(std::remove_if(known.begin(), known.end(),
                             [&](const Access &was) {
                               return was.begin >= now.begin && was.end <= now.end &&
                                      (writes || (!was.writes && was.stream == stream));
                             }),
              known.end());
  known.push_back(now);
  if (known.size() > most)
    known.erase(known.begin(), known.begin() + most / 2);
}

void standin::forget(uint64_t address, int64_t bytes) {
  known.erase(std::remove_if(known.begin(), known.end(),
                             [&](const Access &was) {
                               return was.begin >= address && was.end <= address + static_cast<uint64_t>(bytes);
                             }),
              known.end());
}
