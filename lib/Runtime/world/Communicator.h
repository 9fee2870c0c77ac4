// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks of a world: the seam between collectives and transports (TCP, MPI, threads in tests).
#ifndef MPT_RUNTIME_WORLD_COMMUNICATOR_H
#define MPT_RUNTIME_WORLD_COMMUNICATOR_H

#include "mpt-c/runtime.h"

#include <atomic>
#include <string>
#include <vector>

namespace mpt::rt {

/// Why something about the world failed. A value instead of the thread's last error: it is found by one thread, told to
/// other ranks, and returned by every later call.
struct Failure {
  mpt_status status = MPT_OK;
  int rank = -1; // that it is about
  std::string text;
  explicit operator bool() const { return status != MPT_OK; }
};

/// Which collective a message belongs to. Sender and receiver have to agree in all of it.
struct Tag {
  enum Kind : uint32_t { Barrier = 1, Broadcast, Agree, Reduce, Gather };
  uint32_t kind = 0;
  uint32_t bucket = 0;   // of a reduction
  uint64_t step = 0;     // likewise
  uint64_t sequence = 0; // how many collectives the world has started
  uint32_t phase = 0;    // of the collective's algorithm

  bool operator==(const Tag &other) const {
    return kind == other.kind && bucket == other.bucket && step == other.step && sequence == other.sequence &&
           phase == other.phase;
  }
};

/// "bucket 2 of step 7 (collective 31)", for messages.
std::string describe(const Tag &tag);

/// Part of a message to or from a peer. Parts of one peer go in the order in which they are listed.
struct Outgoing {
  int peer;
  const void *data;
  int64_t bytes;
};
struct Incoming {
  int peer;
  void *data;
  int64_t bytes;
};

/// Counters of a communicator; read by any thread.
struct Traffic {
  std::atomic<int64_t> sent{0}, received{0}; // bytes of parts
  std::atomic<int64_t> overhead{0};          // bytes sent besides
  std::vector<std::atomic<int64_t>> waited;  // nanoseconds for each rank's message, once an exchange had begun
  explicit Traffic(int ranks) : waited(static_cast<size_t>(ranks)) {}
};

/// Used by one thread, the world's own, but for wake(), `interrupted` and the traffic.
class Communicator {
public:
  const int rank, size;
  Traffic traffic;

  Communicator(int rank, int size) : rank(rank), size(size), traffic(size) {}
  Communicator(const Communicator &) = delete;
  virtual ~Communicator() = default;
  virtual std::string name() const = 0;

  /// Sends and receives all parts at the same time; done when all of them are. Peers without a part are not waited for.
  /// Fails with MPT_PEER_LOST when a rank is lost meanwhile, whether it has a part or not, and with MPT_INCOMPATIBLE
  /// when a peer's message is of another collective or length.
  virtual Failure exchange(const Tag &tag, const std::vector<Outgoing> &sends,
                           const std::vector<Incoming> &receives) = 0;

  /// Waits for wake(), and meanwhile gives and reads signs of life.
  virtual Failure idle() = 0;
  virtual void wake() = 0;
  /// An exchange that runs or comes later fails at once. From any thread; followed by wake().
  std::atomic<bool> interrupted{false};

  /// Tells the others why this rank stops. After a failure that came from them, too: it may not have reached them all.
  virtual void tell(const Failure &failure) = 0;
  /// Takes leave. `failure` is why, where there is one.
  virtual void leave(const Failure &failure) = 0;
};

} // namespace mpt::rt

#endif
