// SPDX-License-Identifier: Apache-2.0
// The loop that moves messages and notices of all peers, and finds out who is lost.
#include "world/TcpCommunicator.h"

#include "world/TcpFlow.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

using namespace mpt::rt;

namespace {

/// The connections to one peer, with notices that have gone or come in part.
struct Channel {
  Socket control, data;
  Notice incoming;
  size_t got = 0;                // bytes of `incoming`
  std::vector<uint8_t> outgoing; // not sent yet
  int64_t broken = 0;            // since when the connection of values is closed; 0: it is not
};

class TcpCommunicator : public Communicator {
  std::vector<Channel> channels;
  std::vector<TcpFlow> flows;
  Peers peers;
  Socket bell;  // of wake()
  Failure news; // that came with the end of an exchange
  std::vector<pollfd> entries;

  Channel &channel(int peer) { return channels[static_cast<size_t>(peer)]; }
  TcpFlow &flow(int peer) { return flows[static_cast<size_t>(peer)]; }

  void say(int peer, const Notice &notice) {
    auto *bytes = reinterpret_cast<const uint8_t *>(&notice);
    channel(peer).outgoing.insert(channel(peer).outgoing.end(), bytes, bytes + sizeof notice);
    traffic.overhead += static_cast<int64_t>(sizeof notice);
  }
  void sayToAll(const Notice &notice) {
    for (int peer = 0; peer < size; ++peer)
      if (channel(peer).control)
        say(peer, notice);
  }

  void flush(Channel &to);
  bool hear(int peer, Failure &told);
  Failure turn(bool exchanging, const Tag &tag);
  void gatherEntries(bool exchanging);
  Failure hearAll();
  Failure moveAll(const Tag &tag);
  Failure move(int peer, const Tag &tag);
  Failure overdue(const Tag &tag) const;
  bool finished() const;
  void quiet(double seconds, bool untilClosed);

public:
  TcpCommunicator(const TcpOptions &options, std::vector<TcpLink> links)
      : Communicator(options.rank, options.size), channels(links.size()), flows(links.size()),
        peers(options.rank, options.size, options.times), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    for (size_t i = 0; i < links.size(); ++i) {
      channels[i].control = std::move(links[i].control);
      channels[i].data = std::move(links[i].data);
    }
  }
  bool usable() const { return static_cast<bool>(bell); }
  std::string name() const override { return "tcp"; }
  Failure exchange(const Tag &tag, const std::vector<Outgoing> &sends, const std::vector<Incoming> &receives) override;
  Failure idle() override { return turn(false, {}); }
  void wake() override {
    uint64_t one = 1;
    while (write(bell.fd(), &one, sizeof one) < 0 && errno == EINTR)
      ;
  }
  void tell(const Failure &failure) override;
  void leave(const Failure &failure) override;
};

} // namespace

void TcpCommunicator::flush(Channel &to) {
  while (to.control && !to.outgoing.empty()) {
    ssize_t sent = send(to.control.fd(), to.outgoing.data(), to.outgoing.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent <= 0)
      return; // the error shows at the next read
    to.outgoing.erase(to.outgoing.begin(), to.outgoing.begin() + sent);
  }
}

/// Reads a peer's notices. False at the end of its connection; `told` is a failure that it has told.
bool TcpCommunicator::hear(int peer, Failure &told) {
  Channel &from = channel(peer);
  for (;;) {
    ssize_t got = recv(from.control.fd(), reinterpret_cast<char *>(&from.incoming) + from.got,
                       sizeof from.incoming - from.got, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0 && errno == EAGAIN)
      return true;
    if (got <= 0)
      return false;
    peers.heard(peer);
    from.got += static_cast<size_t>(got);
    if (from.got < sizeof from.incoming)
      continue;
    from.got = 0;
    if (from.incoming.kind == Notice::Failed && !told)
      told = from.incoming.failure();
    else if (from.incoming.kind == Notice::Bye)
      peers.left(peer);
  }
}

/// Reads all notices that have come. A told failure goes before a closed connection: it names who was lost first.
Failure TcpCommunicator::hearAll() {
  Failure told, closed;
  for (int peer = 0; peer < size; ++peer) {
    if (!channel(peer).control || hear(peer, told))
      continue;
    channel(peer).control.close();
    if (!peers.hasLeft(peer) && !closed)
      closed = died(peer, "has closed its connection: its process has ended");
  }
  if (told && told.rank == rank && told.status == MPT_PEER_LOST)
    told.text += " (so another rank took this one, which lives, for lost)";
  return told ? told : closed;
}

Failure TcpCommunicator::move(int peer, const Tag &tag) {
  Channel &with = channel(peer);
  TcpFlow &message = flow(peer);
  int64_t moved;
  TcpFlow::Result result;
  bool closed = false;
  if (message.sending() && !with.broken) {
    result = message.send(with.data.fd(), moved);
    closed = result == TcpFlow::Result::Closed;
    if (moved)
      peers.progressed();
  }
  while (message.receiving() && !with.broken) {
    result = message.receive(with.data.fd(), moved);
    if (moved) {
      peers.heard(peer);
      peers.progressed();
    }
    if (result != TcpFlow::Result::Header) {
      closed = closed || result == TcpFlow::Result::Closed;
      break;
    }
    const MessageHeader &header = message.inHeader;
    if (header.magic != MessageHeader::magicNumber)
      return {MPT_INTERNAL, peer, "rank " + std::to_string(peer) + " sent what is no message"};
    if (!(header.tag() == tag))
      return apart(rank, tag, peer, header.tag());
    if (header.bytes != static_cast<uint64_t>(message.inBytes))
      return otherLength(rank, tag, message.inBytes, peer, header.bytes);
  }
  // Its notices say why, as soon as they come.
  if (closed && !with.broken)
    with.broken = nanoseconds();
  return {};
}

/// Peers whose connection of values has closed, where an exchange still needs it.
Failure TcpCommunicator::overdue(const Tag &tag) const {
  constexpr double grace = 1;
  for (int peer = 0; peer < size; ++peer) {
    auto &with = channels[static_cast<size_t>(peer)];
    auto &message = flows[static_cast<size_t>(peer)];
    if (!message.sending() && !message.receiving())
      continue;
    if (with.broken && peers.hasLeft(peer))
      return leftEarly(peer, tag);
    if (with.broken && nanoseconds() - with.broken > nanoseconds(grace))
      return died(peer, "has closed its connection of values");
    if (Failure failure = peers.impatience(peer, tag))
      return failure;
  }
  return {};
}

void TcpCommunicator::gatherEntries(bool exchanging) {
  entries.assign(1, {bell.fd(), POLLIN, 0});
  for (int peer = 0; peer < size; ++peer) {
    Channel &with = channel(peer);
    if (with.control)
      entries.push_back({with.control.fd(), static_cast<short>(POLLIN | (with.outgoing.empty() ? 0 : POLLOUT)), 0});
    if (!exchanging || with.broken)
      continue;
    short events = static_cast<short>((flow(peer).sending() ? POLLOUT : 0) | (flow(peer).receiving() ? POLLIN : 0));
    if (events)
      entries.push_back({with.data.fd(), events, 0});
  }
}

/// Waits until something can be moved or is due, and reads the notices that have come.
Failure TcpCommunicator::turn(bool exchanging, const Tag &tag) {
  if (news)
    return news;
  if (peers.beatDue())
    for (int peer = 0; peer < size; ++peer)
      if (channel(peer).control && channel(peer).outgoing.empty()) // who does not read gets no more to read
        say(peer, Notice());
  for (Channel &to : channels)
    flush(to);
  gatherEntries(exchanging);
  poll(entries.data(), entries.size(), std::min(peers.wait(), 100));
  uint64_t rings;
  while (read(bell.fd(), &rings, sizeof rings) < 0 && errno == EINTR)
    ;
  Failure failure = hearAll();
  if (failure)
    return failure;
  peers.tick();
  if ((failure = peers.silence()))
    return failure;
  return exchanging ? overdue(tag) : failure;
}

bool TcpCommunicator::finished() const {
  return std::none_of(flows.begin(), flows.end(),
                      [](const TcpFlow &flow) { return flow.sending() || flow.receiving(); });
}

Failure TcpCommunicator::moveAll(const Tag &tag) {
  for (int peer = 0; peer < size; ++peer)
    if (Failure failure = move(peer, tag))
      return failure;
  return {};
}

Failure TcpCommunicator::exchange(const Tag &tag, const std::vector<Outgoing> &sends,
                                  const std::vector<Incoming> &receives) {
  if (news)
    return news;
  for (TcpFlow &message : flows)
    message = TcpFlow();
  for (const Outgoing &part : sends)
    flow(part.peer).add(part);
  for (const Incoming &part : receives)
    flow(part.peer).add(part);
  for (TcpFlow &message : flows)
    message.begin(tag);
  int64_t begin = nanoseconds();
  peers.progressed();
  std::vector<char> counted(flows.size());
  for (;;) {
    if (interrupted)
      return {MPT_PEER_LOST, rank, "rank " + std::to_string(rank) + " has closed the world during " + describe(tag)};
    if (Failure failure = moveAll(tag))
      return failure;
    for (size_t peer = 0; peer < flows.size(); ++peer)
      if (flows[peer].headerRead && !counted[peer]) {
        counted[peer] = 1;
        traffic.waited[peer] += nanoseconds() - begin;
      }
    if (finished())
      break;
    if (Failure failure = turn(true, tag)) {
      // This exchange's messages may have come before the news. Then it is done here as it is elsewhere.
      if (moveAll(tag) || !finished())
        return failure;
      news = failure;
      break;
    }
  }
  for (const TcpFlow &message : flows) {
    traffic.sent += message.outBytes;
    traffic.received += message.inBytes;
    traffic.overhead += message.sends ? static_cast<int64_t>(sizeof(MessageHeader)) : 0;
  }
  return {};
}

/// Sends the notices that are left, and reads, for at most so long.
void TcpCommunicator::quiet(double seconds, bool untilClosed) {
  int64_t deadline = nanoseconds() + nanoseconds(seconds);
  Failure ignored;
  for (;;) {
    bool busy = false;
    entries.clear();
    for (int peer = 0; peer < size; ++peer) {
      Channel &with = channel(peer);
      flush(with);
      if (with.control && !hear(peer, ignored))
        with.control.close();
      if (!with.control)
        continue;
      busy = busy || untilClosed || !with.outgoing.empty();
      entries.push_back({with.control.fd(), static_cast<short>(POLLIN | (with.outgoing.empty() ? 0 : POLLOUT)), 0});
    }
    if (!busy || nanoseconds() >= deadline)
      return;
    poll(entries.data(), entries.size(), 20);
  }
}

void TcpCommunicator::tell(const Failure &failure) {
  sayToAll(Notice::of(failure));
  quiet(0.5, false);
}

// A connection that is closed while something unread lies in it may lose the data sent last. So this side says
// that it sends no more, and waits a moment for the others to close theirs.
void TcpCommunicator::leave(const Failure &failure) {
  if (!failure) {
    Notice bye;
    bye.kind = Notice::Bye;
    sayToAll(bye);
    quiet(1, false);
  }
  for (Channel &with : channels)
    if (with.control)
      shutdown(with.control.fd(), SHUT_WR);
  quiet(failure ? 0.3 : 1, true);
}

Failure mpt::rt::openTcp(const TcpOptions &options, std::unique_ptr<Communicator> &out) {
  std::vector<TcpLink> links;
  if (Failure failure = connectRanks(options, links))
    return failure;
  auto communicator = std::make_unique<TcpCommunicator>(options, std::move(links));
  if (!communicator->usable())
    return {MPT_IO_ERROR, options.rank, std::string("no eventfd: ") + strerror(errno)};
  out = std::move(communicator);
  return {};
}
