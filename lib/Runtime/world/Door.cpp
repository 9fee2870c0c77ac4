// SPDX-License-Identifier: Apache-2.0
// Reads who connects, several at a time: a stranger that says nothing must not keep others waiting.
#include "world/Door.h"

#include "world/Peers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>

using namespace mpt::rt;

namespace {

constexpr size_t mostGuests = 512;
constexpr double guestSeconds = 5;

/// Takes the same time wherever the first difference lies.
bool isSame(const char *a, const char *b, size_t bytes) {
  unsigned difference = 0;
  for (size_t i = 0; i < bytes; ++i)
    difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool isWelcome(const Hello &hello, const std::string &token) {
  Hello expected;
  token.copy(expected.token, sizeof expected.token - 1);
  bool known = isSame(hello.token, expected.token, sizeof expected.token);
  return known && isSame(hello.magic, expected.magic, sizeof expected.magic);
}

} // namespace

bool Door::open(const Address &address, int backlog, int &error) {
  listener = listenOn(address, backlog, error);
  return static_cast<bool>(listener);
}

void Door::admit() {
  for (;;) {
    Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket)
      return;
    if (!prepare(socket))
      continue;
    if (guests.size() == mostGuests) { // who is a rank has said so long before
      guests.pop_front();
      ++refused;
    }
    guests.push_back({std::move(socket), {}, 0, nanoseconds() + nanoseconds(guestSeconds)});
  }
}

Door::Reading Door::read(Guest &guest) {
  char *to = reinterpret_cast<char *>(&guest.hello);
  while (guest.got < sizeof guest.hello) {
    ssize_t got = recv(guest.socket.fd(), to + guest.got, sizeof guest.hello - guest.got, 0);
    if (got > 0)
      guest.got += static_cast<size_t>(got);
    else if (got < 0 && errno == EINTR)
      continue;
    else
      return got < 0 && errno == EAGAIN && nanoseconds() < guest.deadline ? Reading::More : Reading::Over;
  }
  return Reading::Complete;
}

bool Door::accept(const std::string &token, Hello &hello, Socket &socket, int64_t deadline) {
  for (;;) {
    admit();
    for (size_t i = 0; i < guests.size();) {
      Reading reading = read(guests[i]);
      if (reading == Reading::More) {
        ++i;
        continue;
      }
      Guest guest = std::move(guests[i]);
      guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
      if (reading == Reading::Complete && isWelcome(guest.hello, token)) {
        hello = guest.hello;
        socket = std::move(guest.socket);
        return true;
      }
      ++refused; // closed without a word
    }
    int64_t left = (deadline - nanoseconds()) / 1000000;
    if (left <= 0)
      return false;
    std::vector<pollfd> entries = {{listener.fd(), POLLIN, 0}};
    for (const Guest &guest : guests)
      entries.push_back({guest.socket.fd(), POLLIN, 0});
    poll(entries.data(), entries.size(), static_cast<int>(std::min<int64_t>(left, 200)));
  }
}
