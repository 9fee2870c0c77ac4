// SPDX-License-Identifier: Apache-2.0
// Clocks of signs of life, and the texts of failures.
#include "world/Peers.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

using namespace mpt::rt;

Notice Notice::of(const Failure &failure) {
  Notice notice;
  notice.kind = Failed;
  notice.status = failure.status;
  notice.rank = failure.rank;
  failure.text.copy(notice.text, sizeof notice.text - 1);
  return notice;
}

Failure Notice::failure() const {
  // Whatever a peer of another build may send, it is a failure with a text that ends.
  bool known = status > MPT_OK && status <= MPT_PEER_LOST;
  return {known ? static_cast<mpt_status>(status) : MPT_PEER_LOST, rank, std::string(text, strnlen(text, sizeof text))};
}

int64_t mpt::rt::nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Peers::Peers(int rank, int size, const Times &times)
    : rank(rank), times(times), interval(nanoseconds(std::min(1.0, times.timeout / 8))), real(nanoseconds()),
      last(static_cast<size_t>(size)), gone(static_cast<size_t>(size)) {}

void Peers::tick() {
  int64_t now = nanoseconds();
  awake += std::min(now - real, 2 * interval);
  real = now;
}

bool Peers::beatDue() {
  if (awake < nextBeat)
    return false;
  nextBeat = awake + interval;
  return true;
}

int Peers::wait() const { return static_cast<int>(std::max<int64_t>(1, (nextBeat - awake) / 1000000)); }

Failure Peers::silence() const {
  for (size_t peer = 0; peer < last.size(); ++peer)
    if (static_cast<int>(peer) != rank && !gone[peer] && awake - last[peer] > nanoseconds(times.timeout)) {
      char how[100];
      snprintf(how, sizeof how, "gave no sign of life for %g s: it hangs or is cut off", times.timeout);
      return died(static_cast<int>(peer), how);
    }
  return {};
}

Failure Peers::impatience(int peer, const Tag &tag) const {
  if (awake - lastProgress <= nanoseconds(times.patience))
    return {};
  char how[100];
  snprintf(how, sizeof how, "lives, but has not come for %g s to ", times.patience);
  return died(peer, how + describe(tag));
}

Failure mpt::rt::died(int peer, const std::string &how) {
  return {MPT_PEER_LOST, peer, "rank " + std::to_string(peer) + " is lost: it " + how};
}

Failure mpt::rt::leftEarly(int peer, const Tag &tag) {
  return died(peer, "has left the world before " + describe(tag));
}

Failure mpt::rt::apart(int rank, const Tag &ours, int peer, const Tag &theirs) {
  return {MPT_INCOMPATIBLE, peer,
          "ranks went apart: rank " + std::to_string(rank) + " is at " + describe(ours) + ", rank " +
              std::to_string(peer) + " at " + describe(theirs) +
              ": expected the same collectives in the same order on all ranks"};
}

Failure mpt::rt::otherLength(int rank, const Tag &tag, int64_t expected, int peer, uint64_t got) {
  return {MPT_INCOMPATIBLE, peer,
          "ranks went apart: in " + describe(tag) + ", rank " + std::to_string(rank) + " expected " +
              std::to_string(expected) + " bytes of rank " + std::to_string(peer) + ", got " + std::to_string(got)};
}
