// SPDX-License-Identifier: Apache-2.0
// Barrier, broadcast and comparison of texts.
#include "world/Collectives.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

Failure mpt::rt::barrierAcross(Communicator &communicator, const Tag &tag) {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int peer = 0; peer < communicator.size; ++peer)
    if (peer != communicator.rank) {
      sends.push_back({peer, nullptr, 0});
      receives.push_back({peer, nullptr, 0});
    }
  return communicator.exchange(tag, sends, receives);
}

Failure mpt::rt::gatherAcross(Communicator &communicator, const Tag &tag, int root, const void *mine, int64_t bytes,
                              void *all) {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  const bool collects = root < 0 || communicator.rank == root;
  auto placeOf = [&](int rank) { return static_cast<uint8_t *>(all) + rank * bytes; };
  for (int peer = 0; peer < communicator.size; ++peer) {
    if (peer == communicator.rank)
      continue;
    if (root < 0 || peer == root)
      sends.push_back({peer, mine, bytes});
    if (collects)
      receives.push_back({peer, placeOf(peer), bytes});
  }
  if (collects && mine != placeOf(communicator.rank))
    memcpy(placeOf(communicator.rank), mine, static_cast<size_t>(bytes));
  return communicator.exchange(tag, sends, receives);
}

static Failure broadcastAtOnce(Communicator &communicator, const Tag &tag, int root, void *data, int64_t bytes) {
  if (communicator.rank != root)
    return communicator.exchange(tag, {}, {{root, data, bytes}});
  std::vector<Outgoing> sends;
  for (int peer = 0; peer < communicator.size; ++peer)
    if (peer != root)
      sends.push_back({peer, data, bytes});
  return communicator.exchange(tag, sends, {});
}

Failure mpt::rt::broadcastAcross(Communicator &communicator, Tag tag, int root, void *data, int64_t bytes) {
  constexpr int64_t small = 65536;
  if (bytes <= small || communicator.size == 2)
    return broadcastAtOnce(communicator, tag, root, data, bytes);
  int ranks = communicator.size, rank = communicator.rank;
  auto *memory = static_cast<uint8_t *>(data);
  // In 64 bits this does not overflow for sizes that fit into memory.
  auto begin = [&](int piece) { return bytes / ranks * piece + bytes % ranks * piece / ranks; };
  auto size = [&](int piece) { return begin(piece + 1) - begin(piece); };
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  if (rank == root) {
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != root)
        sends.push_back({peer, memory + begin(peer), size(peer)});
  } else {
    receives.push_back({root, memory + begin(rank), size(rank)});
  }
  if (Failure failure = communicator.exchange(tag, sends, receives))
    return failure;
  ++tag.phase;
  sends.clear();
  receives.clear();
  // Everybody passes its own piece to all ranks but the root, which has it.
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank)
      continue;
    if (peer != root)
      sends.push_back({peer, memory + begin(rank), size(rank)});
    if (rank != root)
      receives.push_back({peer, memory + begin(peer), size(peer)});
  }
  return communicator.exchange(tag, sends, receives);
}

namespace {

/// The part of a text around its first difference from another, for a message.
std::string excerpt(const std::string &text, size_t at) {
  constexpr size_t before = 40, length = 160;
  size_t begin = at > before ? at - before : 0;
  std::string part = text.substr(std::min(begin, text.size()), length);
  return (begin ? "'..." : "'") + part + (begin + length < text.size() ? "...'" : "'");
}

std::string differenceOf(const std::string &what, const std::string &ours, const std::string &theirs, int rank) {
  size_t at = 0;
  while (at < std::min(ours.size(), theirs.size()) && ours[at] == theirs[at])
    ++at;
  return what + " of rank " + std::to_string(rank) + " is not that of rank 0: expected " + excerpt(ours, at) +
         ", got " + excerpt(theirs, at);
}

} // namespace

/// Rank 0's part: receives the texts of all others, and finds the first difference.
static Failure compareWithOthers(Communicator &communicator, Tag tag, const std::string &what, const std::string &text,
                                 std::string &difference) {
  size_t others = static_cast<size_t>(communicator.size) - 1;
  std::vector<uint64_t> lengths(others);
  std::vector<std::string> texts(others);
  std::vector<Incoming> receives;
  receives.reserve(others);
  for (size_t i = 0; i < others; ++i)
    receives.push_back({static_cast<int>(i) + 1, &lengths[i], sizeof lengths[i]});
  if (Failure failure = communicator.exchange(tag, {}, receives))
    return failure;
  ++tag.phase;
  receives.clear();
  for (size_t i = 0; i < others; ++i) {
    if (lengths[i] > longestText)
      return {MPT_INCOMPATIBLE, static_cast<int>(i) + 1,
              "rank " + std::to_string(i + 1) + " announced a text of " + std::to_string(lengths[i]) + " bytes"};
    texts[i].resize(lengths[i]);
    receives.push_back({static_cast<int>(i) + 1, texts[i].data(), static_cast<int64_t>(lengths[i])});
  }
  if (Failure failure = communicator.exchange(tag, {}, receives))
    return failure;
  for (size_t i = 0; i < others && difference.empty(); ++i)
    if (texts[i] != text)
      difference = differenceOf(what, text, texts[i], static_cast<int>(i) + 1);
  return {};
}

Failure mpt::rt::compareAcross(Communicator &communicator, Tag tag, const std::string &what, const std::string &text,
                               std::string &difference) {
  uint64_t length = text.size();
  Failure failure;
  if (communicator.rank == 0) {
    failure = compareWithOthers(communicator, tag, what, text, difference);
    ++tag.phase;
  } else {
    failure = communicator.exchange(tag, {{0, &length, sizeof length}}, {});
    ++tag.phase;
    if (!failure)
      failure = communicator.exchange(tag, {{0, text.data(), static_cast<int64_t>(length)}}, {});
  }
  if (failure)
    return failure;
  // The verdict has a fixed size, as a message of its own length would need one more round.
  char verdict[1000] = {};
  ++tag.phase;
  difference.copy(verdict, sizeof verdict - 1);
  failure = broadcastAtOnce(communicator, tag, 0, verdict, sizeof verdict);
  difference = verdict;
  return failure;
}
