// SPDX-License-Identifier: Apache-2.0
// Exchanges and notices as MPI's messages. MPI itself does not say who is lost: signs of life do.
#include "world/MpiCommunicator.h"

#include "world/MpiLibrary.h"
#include "world/TcpFlow.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

using namespace mpt::rt;

namespace {

enum { NoticeTag = 1, HeaderTag, PartTag };
constexpr int64_t largestMessage = 1 << 30; // MPI counts in int

/// The notices to and from one peer.
struct Channel {
  Notice incoming, outgoing;
  MpiRequest receiving, sending;
  std::deque<Notice> queue; // behind `outgoing`
};

/// One exchange with one peer.
struct Message {
  bool sends = false, receives = false, checked = false;
  int64_t outBytes = 0, inBytes = 0;
  MessageHeader out, in;
  MpiRequest header; // its receive
};

class MpiCommunicator : public Communicator {
  std::unique_ptr<MpiLibrary> mpi;
  const bool finalizes; // this world initialized MPI
  std::vector<Channel> channels;
  std::vector<Message> messages;
  std::deque<std::pair<int, MpiRequest>> requests; // of the exchange, with their peers
  Peers peers;
  int bell;
  Failure news; // that came with the end of an exchange

  Channel &channel(int peer) { return channels[static_cast<size_t>(peer)]; }
  Failure failed(int peer, int error, const char *what) const {
    return died(peer, std::string("could not be reached: ") + what + ": " + mpi->textOf(error));
  }
  void say(int peer, const Notice &notice) {
    channel(peer).queue.push_back(notice);
    traffic.overhead += static_cast<int64_t>(sizeof notice);
  }
  Failure listen(int peer);
  Failure hear(int peer, Failure &told);
  Failure speak(int peer);
  Failure turn();
  Failure post(const Tag &tag, const std::vector<Outgoing> &sends, const std::vector<Incoming> &receives);
  Failure postPart(int peer, void *data, int64_t bytes, bool sends);
  Failure check(int peer, const Tag &tag, int64_t begin);
  Failure advance(const Tag &tag, int64_t begin, bool &done, bool &moved);
  Failure checkMissing(const Tag &tag, int64_t begin);
  Failure converse(const Tag &tag);
  void giveUp();
  bool allLeft() const;

public:
  MpiCommunicator(std::unique_ptr<MpiLibrary> library, bool finalizes, int rank, int size, const Times &times)
      : Communicator(rank, size), mpi(std::move(library)), finalizes(finalizes), channels(static_cast<size_t>(size)),
        messages(static_cast<size_t>(size)), peers(rank, size, times), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~MpiCommunicator() override { close(bell); }
  Failure start() {
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank)
        if (Failure failure = listen(peer))
          return failure;
    return {};
  }
  std::string name() const override { return std::string("mpi (") + mpi->name() + ")"; }
  Failure exchange(const Tag &tag, const std::vector<Outgoing> &sends, const std::vector<Incoming> &receives) override;
  Failure idle() override;
  void wake() override {
    uint64_t one = 1;
    while (write(bell, &one, sizeof one) < 0 && errno == EINTR)
      ;
  }
  void tell(const Failure &failure) override;
  void leave(const Failure &failure) override;
};

} // namespace

Failure MpiCommunicator::listen(int peer) {
  Channel &from = channel(peer);
  if (int error = mpi->receive(&from.incoming, sizeof from.incoming, peer, NoticeTag, from.receiving))
    return failed(peer, error, "MPI_Irecv");
  return {};
}

Failure MpiCommunicator::hear(int peer, Failure &told) {
  Channel &from = channel(peer);
  while (from.receiving.active) {
    if (int error = mpi->test(from.receiving))
      return failed(peer, error, "MPI_Test");
    if (from.receiving.active)
      break;
    peers.heard(peer);
    if (from.incoming.kind == Notice::Failed && !told)
      told = from.incoming.failure();
    if (from.incoming.kind == Notice::Bye) {
      peers.left(peer);
      break; // says nothing after it
    }
    if (Failure failure = listen(peer))
      return failure;
  }
  return {};
}

Failure MpiCommunicator::speak(int peer) {
  Channel &to = channel(peer);
  for (;;) {
    if (to.sending.active)
      if (int error = mpi->test(to.sending))
        return failed(peer, error, "MPI_Test");
    if (to.sending.active || to.queue.empty())
      return {};
    to.outgoing = to.queue.front();
    to.queue.pop_front();
    if (int error = mpi->send(&to.outgoing, sizeof to.outgoing, peer, NoticeTag, to.sending))
      return failed(peer, error, "MPI_Isend");
  }
}

/// Notices of all peers, both ways, and who is silent.
Failure MpiCommunicator::turn() {
  if (news)
    return news;
  Failure told, broken;
  bool beat = peers.beatDue();
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank)
      continue;
    if (beat && !peers.hasLeft(peer) && channel(peer).queue.empty() && !channel(peer).sending.active)
      say(peer, Notice());
    if (Failure failure = hear(peer, told); failure && !broken)
      broken = failure;
    if (Failure failure = speak(peer); failure && !broken)
      broken = failure;
  }
  if (told)
    return told;
  if (broken)
    return broken;
  peers.tick();
  return peers.silence();
}

Failure MpiCommunicator::postPart(int peer, void *data, int64_t bytes, bool sends) {
  auto *memory = static_cast<uint8_t *>(data);
  while (bytes > 0) {
    int piece = static_cast<int>(std::min(bytes, largestMessage));
    requests.emplace_back(peer, MpiRequest());
    MpiRequest &request = requests.back().second;
    if (int error = sends ? mpi->send(memory, piece, peer, PartTag, request)
                          : mpi->receive(memory, piece, peer, PartTag, request))
      return failed(peer, error, sends ? "MPI_Isend" : "MPI_Irecv");
    memory += piece;
    bytes -= piece;
  }
  return {};
}

Failure MpiCommunicator::post(const Tag &tag, const std::vector<Outgoing> &sends,
                              const std::vector<Incoming> &receives) {
  for (Message &message : messages)
    message = Message();
  for (const Outgoing &part : sends) {
    Message &message = messages[static_cast<size_t>(part.peer)];
    message.sends = true;
    message.outBytes += part.bytes;
  }
  for (const Incoming &part : receives) {
    Message &message = messages[static_cast<size_t>(part.peer)];
    message.receives = true;
    message.inBytes += part.bytes;
  }
  for (int peer = 0; peer < size; ++peer) {
    Message &message = messages[static_cast<size_t>(peer)];
    if (message.receives)
      if (int error = mpi->receive(&message.in, sizeof message.in, peer, HeaderTag, message.header))
        return failed(peer, error, "MPI_Irecv");
    if (!message.sends)
      continue;
    message.out = MessageHeader::of(tag, message.outBytes);
    requests.emplace_back(peer, MpiRequest());
    if (int error = mpi->send(&message.out, sizeof message.out, peer, HeaderTag, requests.back().second))
      return failed(peer, error, "MPI_Isend");
  }
  for (const Incoming &part : receives)
    if (Failure failure = postPart(part.peer, part.data, part.bytes, false))
      return failure;
  for (const Outgoing &part : sends)
    if (Failure failure = postPart(part.peer, const_cast<void *>(part.data), part.bytes, true))
      return failure;
  return {};
}

/// Looks at a peer's header once it has come.
Failure MpiCommunicator::check(int peer, const Tag &tag, int64_t begin) {
  Message &message = messages[static_cast<size_t>(peer)];
  if (!message.receives || message.checked)
    return {};
  if (int error = mpi->test(message.header))
    return failed(peer, error, "MPI_Test");
  if (message.header.active)
    return {};
  message.checked = true;
  peers.heard(peer);
  traffic.waited[static_cast<size_t>(peer)] += nanoseconds() - begin;
  if (message.in.magic != MessageHeader::magicNumber)
    return {MPT_INTERNAL, peer, "rank " + std::to_string(peer) + " sent what is no message"};
  if (!(message.in.tag() == tag))
    return apart(rank, tag, peer, message.in.tag());
  if (message.in.bytes != static_cast<uint64_t>(message.inBytes))
    return otherLength(rank, tag, message.inBytes, peer, message.in.bytes);
  return {};
}

/// Headers before parts: the error of a header that does not fit tells more than a part that is cut.
Failure MpiCommunicator::advance(const Tag &tag, int64_t begin, bool &done, bool &moved) {
  done = true;
  moved = false;
  for (int peer = 0; peer < size; ++peer) {
    Message &message = messages[static_cast<size_t>(peer)];
    bool before = message.checked;
    if (Failure failure = check(peer, tag, begin))
      return failure;
    moved = moved || message.checked != before;
    done = done && (!message.receives || message.checked);
  }
  for (auto &[peer, request] : requests) {
    if (!request.active)
      continue;
    if (int error = mpi->test(request)) {
      if (Failure failure = check(peer, tag, begin))
        return failure;
      return failed(peer, error, "MPI_Test");
    }
    moved = moved || !request.active;
    done = done && !request.active;
  }
  if (moved)
    peers.progressed();
  return {};
}

/// Whose message is missing: peers that have left, or that take longer than a world waits.
Failure MpiCommunicator::checkMissing(const Tag &tag, int64_t begin) {
  for (int peer = 0; peer < size; ++peer) {
    const Message &message = messages[static_cast<size_t>(peer)];
    if (!message.receives || message.checked)
      continue;
    if (peers.hasLeft(peer)) {
      // Messages that it sent before it left are there by now.
      if (Failure failure = check(peer, tag, begin))
        return failure;
      if (!message.checked)
        return leftEarly(peer, tag);
      continue;
    }
    if (Failure failure = peers.impatience(peer, tag))
      return failure;
  }
  return {};
}

Failure MpiCommunicator::converse(const Tag &tag) {
  int64_t begin = nanoseconds(), lastTurn = 0;
  constexpr int64_t betweenTurns = 5000000; // notices are looked at every 5 ms
  peers.progressed();
  for (int pauses = 0;;) {
    if (interrupted)
      return {MPT_PEER_LOST, rank, "rank " + std::to_string(rank) + " has closed the world during " + describe(tag)};
    bool done, moved;
    if (Failure failure = advance(tag, begin, done, moved))
      return failure;
    if (done)
      return {};
    if (int64_t now = nanoseconds(); now - lastTurn > betweenTurns) {
      lastTurn = now;
      if (Failure failure = turn()) {
        // This exchange's messages may have come before the news. Then it is done here as it is elsewhere.
        if (advance(tag, begin, done, moved) || !done)
          return failure;
        news = failure;
        return {};
      }
      if (Failure failure = checkMissing(tag, begin))
        return failure;
    }
    // MPI moves data inside its calls alone. Who has nothing to move leaves the processor to threads that compute.
    pauses = moved ? 0 : pauses + 1;
    if (pauses > 20)
      std::this_thread::sleep_for(std::chrono::microseconds(pauses > 200 ? 200 : 20));
    else if (pauses)
      std::this_thread::yield();
  }
}

Failure MpiCommunicator::exchange(const Tag &tag, const std::vector<Outgoing> &sends,
                                  const std::vector<Incoming> &receives) {
  if (news)
    return news;
  requests.clear();
  Failure failure = post(tag, sends, receives);
  if (!failure)
    failure = converse(tag);
  if (failure) {
    giveUp();
    return failure;
  }
  for (const Message &message : messages) {
    traffic.sent += message.outBytes;
    traffic.received += message.inBytes;
    traffic.overhead += message.sends ? static_cast<int64_t>(sizeof(MessageHeader)) : 0;
  }
  return {};
}

/// MPI must not write into the caller's memory any more. A request that cannot be cancelled, as its peer is dead in the
/// middle of it, stays: without further calls MPI does not move anything.
void MpiCommunicator::giveUp() {
  for (auto &[peer, request] : requests)
    if (request.active)
      mpi->cancel(request);
  for (Message &message : messages)
    if (message.header.active)
      mpi->cancel(message.header);
  int64_t deadline = nanoseconds() + nanoseconds(0.2);
  for (bool busy = true; busy && nanoseconds() < deadline;) {
    busy = false;
    for (auto &[peer, request] : requests)
      busy = busy || (request.active && mpi->test(request) == 0 && request.active);
    for (Message &message : messages)
      busy = busy || (message.header.active && mpi->test(message.header) == 0 && message.header.active);
  }
}

Failure MpiCommunicator::idle() {
  pollfd entry = {bell, POLLIN, 0};
  poll(&entry, 1, std::min(peers.wait(), 20));
  uint64_t rings;
  while (read(bell, &rings, sizeof rings) < 0 && errno == EINTR)
    ;
  return turn();
}

bool MpiCommunicator::allLeft() const {
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank && (!peers.hasLeft(peer) || channels[static_cast<size_t>(peer)].sending.active ||
                         !channels[static_cast<size_t>(peer)].queue.empty()))
      return false;
  return true;
}

void MpiCommunicator::tell(const Failure &failure) {
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank)
      say(peer, Notice::of(failure));
  // They leave with calls of MPI, of which this is the last one.
  int64_t deadline = nanoseconds() + nanoseconds(0.5);
  for (bool busy = true; busy && nanoseconds() < deadline; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    busy = false;
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank && peer != failure.rank) {
        speak(peer);
        busy = busy || channel(peer).sending.active || !channel(peer).queue.empty();
      }
  }
}

// MPI_Finalize waits for all processes, for ever where one is lost: a world that has failed leaves without it.
void MpiCommunicator::leave(const Failure &failure) {
  if (failure) {
    requests.clear();
    for (size_t peer = 0; peer < channels.size(); ++peer) { // the program may go on to use MPI
      requests.emplace_back(static_cast<int>(peer), channels[peer].receiving);
      requests.emplace_back(static_cast<int>(peer), channels[peer].sending);
    }
    giveUp();
    return;
  }
  Notice bye;
  bye.kind = Notice::Bye;
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank)
      say(peer, bye);
  while (!allLeft()) {
    if (turn())
      return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (mpi->close() == 0 && finalizes)
    mpi->finalize();
}

Failure mpt::rt::openMpi(const MpiOptions &options, std::unique_ptr<Communicator> &out) {
  std::unique_ptr<MpiLibrary> mpi;
  if (Failure failure = openMpiLibrary(options.library, options.names, mpi))
    return failure;
  if (mpi->isFinalized())
    return {MPT_INVALID_ARGUMENT, options.rank,
            "MPI was finalized, and cannot be used again in a process: keep one world"};
  bool initializes = !mpi->isInitialized();
  if (initializes && mpi->initialize() != 0)
    return {MPT_INTERNAL, options.rank, "MPI_Init_thread failed"};
  if (!initializes && !mpi->allowsThreads())
    return {MPT_INVALID_ARGUMENT, options.rank,
            "expected MPI to be initialized with MPI_THREAD_MULTIPLE, as the world calls it from a thread of its own, "
            "or not "
            "at all"};
  int rank = 0, size = 0;
  if (int error = mpi->open(rank, size))
    return {MPT_INTERNAL, options.rank, "no communicator of MPI: " + mpi->textOf(error)};
  if (options.size && (size != options.size || rank != options.rank))
    return {MPT_INVALID_ARGUMENT, options.rank,
            "expected rank " + std::to_string(options.rank) + " of " + std::to_string(options.size) + ", " +
                mpi->name() + " says " + std::to_string(rank) + " of " + std::to_string(size) +
                ": is it the library of the launcher? `mpi_library` names another one"};
  auto communicator = std::make_unique<MpiCommunicator>(std::move(mpi), initializes, rank, size, options.times);
  if (Failure failure = communicator->start())
    return failure;
  out = std::move(communicator);
  return {};
}
