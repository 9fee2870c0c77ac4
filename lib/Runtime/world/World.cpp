// SPDX-License-Identifier: Apache-2.0
// Collectives of a world by name, and its statistics.
#include "world/World.h"

#include "core/Error.h"
#include "world/Collectives.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace mpt::rt;

static mpt_status report(const Failure &failure) {
  return failure ? fail(failure.status, "%s", failure.text.c_str()) : MPT_OK;
}

World::World(std::unique_ptr<Progress> given)
    : progress(std::move(given)), ownRank(progress->rank()), ranks(progress->size()) {}

uint64_t World::start(Tag tag, std::function<Failure(Communicator &, const Tag &)> run) {
  tag.sequence = ++sequence;
  return progress->submit([tag, run = std::move(run)](Communicator &communicator) { return run(communicator, tag); });
}

mpt_status World::wait(uint64_t ticket) {
  auto begin = std::chrono::steady_clock::now();
  Failure failure = progress->wait(ticket);
  waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report(failure);
}

mpt_status World::check() { return progress ? report(progress->check()) : MPT_OK; }

mpt_status World::barrier() {
  if (!progress)
    return MPT_OK;
  Tag tag;
  tag.kind = Tag::Barrier;
  return wait(start(tag, barrierAcross));
}

mpt_status World::broadcast(int root, void *data, int64_t bytes) {
  if (root < 0 || root >= ranks)
    return fail(MPT_INVALID_ARGUMENT, "expected a root below the %d ranks, got %d", ranks, root);
  if (bytes < 0 || (!data && bytes))
    return fail(MPT_INVALID_ARGUMENT, "expected memory to broadcast, got %s", data ? "a negative size" : "NULL");
  if (!progress)
    return MPT_OK;
  Tag tag;
  tag.kind = Tag::Broadcast;
  tag.bucket = static_cast<uint32_t>(root);
  return wait(start(tag, [=](Communicator &communicator, const Tag &tag) {
    return broadcastAcross(communicator, tag, root, data, bytes);
  }));
}

mpt_status World::gather(int root, const void *mine, int64_t bytes, void *all) {
  if (!progress) {
    if (mine != all)
      memcpy(all, mine, static_cast<size_t>(bytes));
    return MPT_OK;
  }
  Tag tag;
  tag.kind = Tag::Gather;
  return wait(start(tag, [=](Communicator &communicator, const Tag &tag) {
    return gatherAcross(communicator, tag, root, mine, bytes, all);
  }));
}

mpt_status World::agree(const char *what, const std::string &text) {
  if (text.size() > longestText)
    return fail(MPT_INVALID_ARGUMENT, "%s: expected a text of at most %zu bytes, got %zu", what, longestText,
                text.size());
  if (!progress)
    return MPT_OK;
  Tag tag;
  tag.kind = Tag::Agree;
  std::string difference; // of the caller's: that ranks differ is no failure of the world
  mpt_status status = wait(start(tag, [&](Communicator &communicator, const Tag &tag) {
    return compareAcross(communicator, tag, what, text, difference);
  }));
  if (status == MPT_OK && !difference.empty())
    return fail(MPT_INCOMPATIBLE, "%s", difference.c_str());
  return status;
}

mpt_status World::abandon(const char *why) {
  if (!progress)
    return MPT_OK;
  progress->fail({MPT_PEER_LOST, ownRank, "rank " + std::to_string(ownRank) + " cannot go on: " + why});
  progress->check(); // whose caller may end the process at once
  return MPT_OK;
}

void World::statistics(mpt_world_stats &out) const {
  int32_t version = out.version;
  out = {};
  out.version = version;
  out.slowest_rank = -1;
  if (!progress)
    return;
  const Traffic &traffic = progress->traffic();
  out.collectives = progress->jobsDone();
  out.bytes_sent = traffic.sent + sentByDevice;
  out.bytes_received = traffic.received + receivedByDevice;
  out.overhead_bytes = traffic.overhead;
  out.seconds = progress->busySeconds();
  out.waited_seconds = waited;
  out.hidden_seconds = std::max(0.0, out.seconds - waited);
  int64_t longest = 0;
  for (size_t i = 0; i < traffic.waited.size(); ++i)
    if (int64_t time = traffic.waited[i]; time > longest) {
      longest = time;
      out.slowest_rank = static_cast<int32_t>(i);
    }
  out.slowest_seconds = static_cast<double>(longest) * 1e-9;
}
