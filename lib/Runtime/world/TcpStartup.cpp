// SPDX-License-Identifier: Apache-2.0
// The rendezvous at rank 0, and the mesh of connections after it.
#include "world/TcpStartup.h"

#include "world/Door.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/random.h>
#include <thread>

using namespace mpt::rt;

namespace {

/// Rank 0's answer to who joins; the places of all ranks follow.
struct Welcome {
  char magic[8] = {'M', 'P', 'T', 'W', 'E', 'L', 'C', 'M'};
  uint32_t version = Hello::Version;
  uint32_t refused = 0; // `text` says why
  uint64_t world = 0;
  char text[232] = {};
};

/// Where a rank waits for others.
struct Place {
  uint32_t besideRank0 = 0; // reached rank 0 inside its host: it is wherever rank 0 is
  uint32_t length = 0;
  char address[sizeof(sockaddr_storage)] = {};

  static Place of(const Address &address) {
    Place place;
    place.besideRank0 = address.isLoopback();
    place.length = std::min<uint32_t>(address.length, sizeof place.address);
    memcpy(place.address, &address.storage, place.length);
    return place;
  }
  /// As seen from a rank that reaches rank 0 at `rank0`.
  Address seenFrom(const Address &rank0) const {
    Address result;
    result.length = std::min<uint32_t>(length, sizeof address);
    memcpy(&result.storage, address, result.length);
    if (!besideRank0)
      return result;
    Address there = rank0;
    there.setPort(result.port());
    return there;
  }
};

std::string number(int64_t value) { return std::to_string(value); }

class Startup {
  const TcpOptions &options;
  std::vector<TcpLink> &links;
  const int64_t deadline;
  Door door;
  Hello hello;               // this rank's introduction
  Address rank0;             // as this rank reaches it
  std::vector<Place> places; // of all ranks

  TcpLink &link(int peer) { return links[static_cast<size_t>(peer)]; }
  int backlog() const { return 2 * options.size + 64; }
  std::string where() const { return options.address + ":" + number(options.port); }
  std::string strangers() const {
    return door.strangers()
               ? "; " + number(door.strangers()) + " connections were turned away: is the token the same on all ranks?"
               : "";
  }

  Failure openMeeting(const std::vector<Address> &addresses);
  std::string objection(const Hello &guest);
  Failure meetOthers();
  Failure openOwnDoor();
  Failure join(const std::vector<Address> &addresses);
  Failure tryToJoin(const Address &address, bool &again);
  Failure connect(int peer, Hello::Channel channel, Socket &socket, int64_t until);
  Failure acceptOthers(int64_t until);
  Failure news() const;
  Failure connectAll();

public:
  Startup(const TcpOptions &options, std::vector<TcpLink> &links)
      : options(options), links(links), deadline(nanoseconds() + nanoseconds(options.times.start)) {
    links.resize(static_cast<size_t>(options.size));
    places.resize(static_cast<size_t>(options.size));
    hello.rank = options.rank;
    hello.size = options.size;
    options.token.copy(hello.token, sizeof hello.token - 1);
  }
  Failure run();
};

void refuse(const Socket &socket, const std::string &text) {
  Welcome answer;
  answer.refused = 1;
  text.copy(answer.text, sizeof answer.text - 1);
  sendAll(socket, &answer, sizeof answer, nanoseconds() + nanoseconds(1.0));
}

/// Whether the other side has closed a connection on which it has nothing to say.
bool isClosed(const Socket &socket) {
  char byte;
  ssize_t got = recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

} // namespace

/// Rank 0 opens the address itself where it is given in digits, and every address of the host for a name, which may
/// mean another one here than elsewhere.
Failure Startup::openMeeting(const std::vector<Address> &addresses) {
  int error = 0;
  for (Address address : addresses) {
    if (!isNumeric(options.address))
      address.setAny();
    if (door.open(address, backlog(), error))
      return {};
    if (error == EADDRNOTAVAIL) { // a service's address, behind which this host is
      address.setAny();
      if (door.open(address, backlog(), error))
        return {};
    }
  }
  return {MPT_IO_ERROR, 0,
          "rank 0 cannot wait for the others at " + where() + ": " + strerror(error) +
              (error == EADDRINUSE ? ": give another port" : "")};
}

/// Why rank 0 does not take a rank that knows the token; empty where it does.
std::string Startup::objection(const Hello &guest) {
  if (guest.version != Hello::Version)
    return "expected version " + number(Hello::Version) + " of the start-up protocol, got " + number(guest.version);
  if (guest.channel != Hello::Join)
    return "expected a rank that joins";
  if (guest.size != options.size)
    return "expected a world of " + number(options.size) + " ranks, as rank 0 was told, got " + number(guest.size);
  if (guest.rank < 1 || guest.rank >= options.size)
    return "expected a rank from 1 to " + number(options.size - 1) + ", got " + number(guest.rank);
  if (guest.port < 1 || guest.port > 65535)
    return "expected a port, got " + number(guest.port);
  if (link(guest.rank).control && !isClosed(link(guest.rank).control))
    return "there are two processes of rank " + number(guest.rank);
  return "";
}

Failure Startup::meetOthers() {
  std::string lastObjection;
  for (;;) {
    int missing = 0, first = 0;
    for (int peer = options.size - 1; peer > 0; --peer)
      if (!link(peer).control) {
        ++missing;
        first = peer;
      }
    if (!missing)
      break;
    Hello guest;
    Socket socket;
    if (!door.accept(options.token, guest, socket, deadline))
      return {MPT_PEER_LOST, first,
              "rank " + number(first) + (missing > 1 ? " and " + number(missing - 1) + " others have" : " has") +
                  " not come to rank 0 at " + where() + " within " + number(static_cast<int64_t>(options.times.start)) +
                  " s" + (lastObjection.empty() ? "" : "; one was refused: " + lastObjection) + strangers()};
    if (std::string why = objection(guest); !why.empty()) {
      lastObjection = why;
      refuse(socket, why);
      continue;
    }
    Address place = peerAddress(socket);
    place.setPort(guest.port);
    places[static_cast<size_t>(guest.rank)] = Place::of(place);
    link(guest.rank).control = std::move(socket);
  }
  Welcome welcome;
  if (getrandom(&welcome.world, sizeof welcome.world, 0) != sizeof welcome.world)
    return {MPT_IO_ERROR, 0, "the system has no random numbers"};
  hello.world = welcome.world;
  for (int peer = 1; peer < options.size; ++peer)
    if (!sendAll(link(peer).control, &welcome, sizeof welcome, deadline) ||
        !sendAll(link(peer).control, places.data(), places.size() * sizeof(Place), deadline))
      return died(peer, "has closed its connection during start-up");
  return {};
}

Failure Startup::openOwnDoor() {
  // Ranks of other hosts may look for it, unless all are on this one.
  Address own = ownAddress(link(0).control);
  if (own.isLoopback() && !isNumeric(options.address))
    own.setAny();
  own.setPort(0);
  int error;
  if (!door.open(own, backlog(), error))
    return {MPT_IO_ERROR, options.rank,
            "rank " + number(options.rank) + " cannot wait for the others at " + own.text() + ": " + strerror(error)};
  hello.port = door.address().port();
  return {};
}

/// One attempt; `again` where rank 0 may not be there yet.
Failure Startup::tryToJoin(const Address &address, bool &again) {
  int error;
  again = true;
  Socket &control = link(0).control;
  control = connectTo(address, std::min(deadline, nanoseconds() + nanoseconds(5.0)), error);
  if (!control)
    return died(0, "cannot be reached at " + where() + ": " + strerror(error));
  rank0 = address;
  if (Failure failure = openOwnDoor()) {
    again = false;
    return failure;
  }
  Welcome welcome;
  Hello join = hello;
  if (!sendAll(control, &join, sizeof join, deadline) || !receiveAll(control, &welcome, sizeof welcome, deadline))
    return died(0, "at " + where() +
                       (isClosed(control) ? " closed the connection: is the token the same on all ranks?"
                                          : " did not answer: have all ranks been started?"));
  again = false;
  if (memcmp(welcome.magic, Welcome().magic, sizeof welcome.magic) != 0)
    return {MPT_INCOMPATIBLE, 0, "what answers at " + where() + " is no rank 0 of this library"};
  welcome.text[sizeof welcome.text - 1] = 0;
  if (welcome.refused)
    return {MPT_INCOMPATIBLE, options.rank, "rank 0 refused rank " + number(options.rank) + ": " + welcome.text};
  hello.world = welcome.world;
  if (!receiveAll(control, places.data(), places.size() * sizeof(Place), deadline))
    return died(0, "closed the connection during start-up");
  return {};
}

Failure Startup::join(const std::vector<Address> &addresses) {
  // A peer that closes at once, again and again, is not rank 0, or has another token: there is no use in a long wait.
  constexpr int mostClosed = 8;
  for (int closed = 0;;) {
    Failure failure;
    for (const Address &address : addresses) {
      bool again;
      failure = tryToJoin(address, again);
      if (!failure || !again)
        return failure;
      closed += link(0).control ? 1 : 0;
    }
    if (nanoseconds() > deadline || closed >= mostClosed)
      return failure;
    std::this_thread::sleep_for(std::chrono::milliseconds(closed ? 250 : 50));
  }
}

Failure Startup::connect(int peer, Hello::Channel channel, Socket &socket, int64_t until) {
  Address address = peer == 0 ? rank0 : places[static_cast<size_t>(peer)].seenFrom(rank0);
  int error;
  socket = connectTo(address, until, error);
  hello.channel = channel;
  if (socket && sendAll(socket, &hello, sizeof hello, until))
    return {};
  return died(peer, "cannot be reached at " + address.text() + ": " + strerror(error ? error : EPIPE));
}

/// A failure that a connected rank tells, or shows by its end: who waits for a rank may have no connection to the one
/// that was lost. Notices stay to be read after start-up.
Failure Startup::news() const {
  Failure told, closed;
  for (int peer = 0; peer < options.size; ++peer) {
    const Socket &control = links[static_cast<size_t>(peer)].control;
    if (!control)
      continue;
    Notice notices[8];
    ssize_t got = recv(control.fd(), notices, sizeof notices, MSG_PEEK | MSG_DONTWAIT);
    for (ssize_t i = 0; !told && i < got / static_cast<ssize_t>(sizeof(Notice)); ++i)
      if (notices[i].kind == Notice::Failed)
        told = notices[i].failure();
    if (!closed && isClosed(control))
      closed = died(peer, "has closed its connection during start-up");
  }
  return told ? told : closed;
}

/// Connections of the ranks above this one. Ranks that come know the token and this world's number.
Failure Startup::acceptOthers(int64_t until) {
  for (;;) {
    int missing = -1;
    for (int peer = options.size - 1; peer > options.rank; --peer)
      if (!link(peer).data || !link(peer).control)
        missing = peer;
    if (missing < 0)
      return {};
    Hello guest;
    Socket socket;
    if (!door.accept(options.token, guest, socket, std::min(until, nanoseconds() + nanoseconds(0.05)))) {
      if (Failure failure = news())
        return failure;
      if (nanoseconds() >= until)
        return died(missing, "has not connected to rank " + number(options.rank) + strangers());
      continue;
    }
    bool fits = guest.version == Hello::Version && guest.world == hello.world && guest.rank > options.rank &&
                guest.rank < options.size && (guest.channel == Hello::Control || guest.channel == Hello::Data);
    if (!fits)
      continue;
    Socket &place = guest.channel == Hello::Control ? link(guest.rank).control : link(guest.rank).data;
    if (!place)
      place = std::move(socket);
  }
}

Failure Startup::run() {
  std::string why;
  std::vector<Address> addresses = resolve(options.address, options.port, why);
  if (addresses.empty())
    return {MPT_INVALID_ARGUMENT, options.rank, "address '" + options.address + "' of rank 0: " + why};
  Failure failure;
  if (options.rank == 0) {
    failure = openMeeting(addresses);
    if (!failure)
      failure = meetOthers();
  } else {
    failure = join(addresses);
  }
  return failure ? failure : connectAll();
}

/// All are there: from now on the time of a lost rank counts.
Failure Startup::connectAll() {
  int64_t until = nanoseconds() + nanoseconds(options.times.timeout);
  Failure failure;
  for (int peer = 0; !failure && peer < options.rank; ++peer) {
    failure = connect(peer, Hello::Data, link(peer).data, until);
    if (!failure && peer > 0)
      failure = connect(peer, Hello::Control, link(peer).control, until);
  }
  if (!failure)
    failure = acceptOthers(until);
  if (!failure)
    return failure;
  // A rank that this one cannot reach may have said why to another.
  if (Failure told = news(); told.status != MPT_OK && told.rank != options.rank)
    failure = told;
  Notice notice = Notice::of(failure);
  for (const TcpLink &other : links)
    if (other.control)
      send(other.control.fd(), &notice, sizeof notice, MSG_NOSIGNAL | MSG_DONTWAIT);
  return failure;
}

Failure mpt::rt::connectRanks(const TcpOptions &options, std::vector<TcpLink> &links) {
  return Startup(options, links).run();
}
