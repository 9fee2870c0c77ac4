// SPDX-License-Identifier: Apache-2.0
// Signs of life: which peers were heard when, and notices to them. Shared by all transports.
#ifndef MPT_RUNTIME_WORLD_PEERS_H
#define MPT_RUNTIME_WORLD_PEERS_H

#include "world/Communicator.h"

#include <cstdint>

namespace mpt::rt {

/// The stated times of faults, in seconds (world.h).
struct Times {
  double timeout = 30, patience = 1800, start = 300;
};

/// A notice between ranks, besides the messages of collectives. Of one size, so that no length has to be trusted.
struct Notice {
  enum Kind : uint32_t { Beat = 1, Failed, Bye };
  uint32_t kind = Beat;
  int32_t status = 0, rank = -1; // of a Failure
  char text[500] = {};
  static Notice of(const Failure &failure);
  Failure failure() const;
};

/// Nanoseconds of a clock that does not jump.
int64_t nanoseconds();
inline int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

/// Time is counted only while this process runs: one that was stopped, and then goes on, has not heard the others for
/// long either, and must not take them for dead before it has read the messages of that time.
class Peers {
public:
  Peers(int rank, int size, const Times &times);

  /// Called by every turn of a loop that reads peers' messages, after reading.
  void tick();
  void heard(int peer) { last[static_cast<size_t>(peer)] = awake; }
  /// A peer that has left is not expected to be heard.
  void left(int peer) { gone[static_cast<size_t>(peer)] = true; }
  bool hasLeft(int peer) const { return gone[static_cast<size_t>(peer)]; }

  /// Whether it is time for a sign of life; then the next one is due an interval later.
  bool beatDue();
  /// Milliseconds until something is due.
  int wait() const;
  /// A peer that was silent for too long.
  Failure silence() const;

  /// Of an exchange: it begins, or something of it has arrived or gone.
  void progressed() { lastProgress = awake; }
  /// `peer`, which is alive, for whom an exchange has waited too long; no failure before that.
  Failure impatience(int peer, const Tag &tag) const;

private:
  int rank;
  Times times;
  int64_t interval, real, awake = 0, lastProgress = 0, nextBeat = 0;
  std::vector<int64_t> last;
  std::vector<char> gone;
};

Failure died(int peer, const std::string &how);
Failure leftEarly(int peer, const Tag &tag);
/// A peer's message is of another collective.
Failure apart(int rank, const Tag &ours, int peer, const Tag &theirs);
Failure otherLength(int rank, const Tag &tag, int64_t expected, int peer, uint64_t got);

} // namespace mpt::rt

#endif
