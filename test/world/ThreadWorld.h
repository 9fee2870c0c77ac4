// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: collectives without a network, for every number of ranks.
#ifndef MPT_TEST_WORLD_THREADWORLD_H
#define MPT_TEST_WORLD_THREADWORLD_H

#include "world/World.h"

#include <chrono>
#include <cstring>
#include <map>

namespace mpt::test {

/// Messages under way between threads.
struct Hub {
  struct Message {
    rt::Tag tag;
    std::vector<uint8_t> bytes;
  };
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Message>> mail; // by sender and receiver
  rt::Failure failure;                                     // of any rank
};

class ThreadCommunicator : public rt::Communicator {
  Hub &hub;
  bool woken = false;

  rt::Failure receive(const rt::Tag &tag, int peer, const std::vector<rt::Incoming> &receives, int64_t bytes) {
    std::unique_lock<std::mutex> lock(hub.mutex);
    auto &queue = hub.mail[{peer, rank}];
    hub.changed.wait(lock, [&] { return !queue.empty() || hub.failure || interrupted; });
    if (hub.failure)
      return hub.failure;
    if (interrupted)
      return {MPT_PEER_LOST, rank, "closed"};
    Hub::Message message = std::move(queue.front());
    queue.pop_front();
    if (!(message.tag == tag) || static_cast<int64_t>(message.bytes.size()) != bytes)
      return {MPT_INCOMPATIBLE, peer,
              "rank " + std::to_string(peer) + " is at " + describe(message.tag) + ", rank " + std::to_string(rank) +
                  " at " + describe(tag)};
    const uint8_t *from = message.bytes.data();
    for (const rt::Incoming &part : receives)
      if (part.peer == peer && part.bytes) {
        memcpy(part.data, from, static_cast<size_t>(part.bytes));
        from += part.bytes;
      }
    traffic.received += bytes;
    return {};
  }

public:
  ThreadCommunicator(Hub &hub, int rank, int size) : Communicator(rank, size), hub(hub) {}
  std::string name() const override { return "threads"; }

  rt::Failure exchange(const rt::Tag &tag, const std::vector<rt::Outgoing> &sends,
                       const std::vector<rt::Incoming> &receives) override {
    std::map<int, std::vector<uint8_t>> messages;
    for (const rt::Outgoing &part : sends) {
      auto *begin = static_cast<const uint8_t *>(part.data);
      auto &bytes = messages[part.peer];
      bytes.insert(bytes.end(), begin, begin + part.bytes);
      traffic.sent += part.bytes;
    }
    {
      std::lock_guard<std::mutex> lock(hub.mutex);
      for (auto &[peer, bytes] : messages)
        hub.mail[{rank, peer}].push_back({tag, std::move(bytes)});
    }
    hub.changed.notify_all();
    std::map<int, int64_t> expected;
    for (const rt::Incoming &part : receives)
      expected[part.peer] += part.bytes;
    for (auto [peer, bytes] : expected)
      if (rt::Failure failure = receive(tag, peer, receives, bytes))
        return failure;
    return {};
  }

  rt::Failure idle() override {
    std::unique_lock<std::mutex> lock(hub.mutex);
    hub.changed.wait(lock, [&] { return woken || hub.failure; });
    woken = false;
    return hub.failure;
  }
  void wake() override {
    {
      std::lock_guard<std::mutex> lock(hub.mutex);
      woken = true;
    }
    hub.changed.notify_all();
  }
  void tell(const rt::Failure &failure) override {
    {
      std::lock_guard<std::mutex> lock(hub.mutex);
      if (!hub.failure)
        hub.failure = failure;
    }
    hub.changed.notify_all();
  }
  void leave(const rt::Failure &) override {}
};

/// Calls body(world) on `size` threads, one a rank.
template <typename Body> void onRanks(int size, Body body) {
  Hub hub;
  std::vector<std::shared_ptr<rt::World>> worlds;
  for (int rank = 0; rank < size; ++rank) {
    rt::Failure failure;
    auto progress = std::make_unique<rt::Progress>(
        [&hub, rank, size](std::unique_ptr<rt::Communicator> &out) {
          out = std::make_unique<ThreadCommunicator>(hub, rank, size);
          return rt::Failure();
        },
        failure);
    worlds.push_back(std::make_shared<rt::World>(std::move(progress)));
  }
  std::vector<std::thread> threads;
  for (auto &world : worlds)
    threads.emplace_back([&body, world] { body(world); });
  for (auto &thread : threads)
    thread.join();
}

} // namespace mpt::test

#endif
