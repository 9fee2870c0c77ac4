// SPDX-License-Identifier: Apache-2.0
// The processes that train together, as one of them sees them: its rank, collectives, and the thread that runs them.
#ifndef MPT_RUNTIME_WORLD_WORLD_H
#define MPT_RUNTIME_WORLD_WORLD_H

#include "world/Peers.h"
#include "world/Progress.h"

#include "mpt-c/world.h"

namespace mpt::rt {

class World {
public:
  /// A world of one process.
  World() = default;
  /// `progress` is open.
  explicit World(std::unique_ptr<Progress> progress);

  int rank() const { return ownRank; }
  int size() const { return ranks; }
  std::string transport() const { return progress ? progress->transport() : "none"; }

  /// Queues a collective; all ranks queue the same ones in the same order. `run` is called on the world's thread with
  /// `tag`, whose sequence number is set. Returns a ticket. Only in worlds of several processes.
  uint64_t start(Tag tag, std::function<Failure(Communicator &, const Tag &)> run);
  /// Waits until that collective is done. Once one has failed, this and all later ones fail alike.
  mpt_status wait(uint64_t ticket);
  /// MPT_OK, or how the world has failed so far; does not wait.
  mpt_status check();

  mpt_status barrier();
  mpt_status broadcast(int root, void *data, int64_t bytes);
  /// `bytes` of each rank one behind the other at `all`, on rank `root`, or on all ranks where it is negative.
  mpt_status gather(int root, const void *mine, int64_t bytes, void *all);
  mpt_status agree(const char *what, const std::string &text);
  mpt_status abandon(const char *why);
  void statistics(mpt_world_stats &out) const;
  /// Seconds after which ranks that live, but do not come, are lost.
  double patience = Times().patience;
  /// Counts bytes that travelled between the ranks' devices.
  void addTraffic(int64_t sent, int64_t received) {
    sentByDevice += sent;
    receivedByDevice += received;
  }

private:
  std::unique_ptr<Progress> progress; // null for one process
  int ownRank = 0, ranks = 1;
  uint64_t sequence = 0;
  double waited = 0; // seconds
  int64_t sentByDevice = 0, receivedByDevice = 0;
};

} // namespace mpt::rt

/// Trainers share it, so that destroying the handle first is fine.
struct mpt_world {
  std::shared_ptr<mpt::rt::World> world;
  std::string transport;
  int localRank = 0;
};

#endif
