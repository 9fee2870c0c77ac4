// SPDX-License-Identifier: Apache-2.0
// Vector clocks of streams: the work of other streams that is over before a piece of work begins, by the events and
// waits that were asked for. The fake driver executes in one order; these tell the orders a device might have taken.
#ifndef MPT_TEST_CUDA_ORDER_H
#define MPT_TEST_CUDA_ORDER_H

#include <cstdint>
#include <map>

namespace standin {

/// Of each stream the last piece of work that is known to be over.
class Clock {
public:
  void join(const Clock &other);
  /// The next piece of work of `stream`.
  void advance(const void *stream) { ++known[stream]; }
  uint64_t of(const void *stream) const;

private:
  std::map<const void *, uint64_t> known;
};

/// A piece of work while it is executed: its accesses are held against others' accesses.
class Working {
public:
  Working(const void *stream, const Clock &clock);
  Working(const Working &) = delete;
  ~Working();

private:
  const void *outerStream;
  const Clock *outerClock;
};

/// Notes a violation where `bytes` at `address` were written, or with `writes` also read, by work that the present
/// piece does not wait for.
void accesses(uint64_t address, int64_t bytes, bool writes, const char *what);
/// Forgets memory that is given back.
void forget(uint64_t address, int64_t bytes);

} // namespace standin

#endif
