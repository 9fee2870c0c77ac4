// SPDX-License-Identifier: Apache-2.0
// Sockets that close themselves, and the few calls on them that start-up needs, each with a deadline.
#ifndef MPT_RUNTIME_WORLD_SOCKET_H
#define MPT_RUNTIME_WORLD_SOCKET_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>

namespace mpt::rt {

class Socket {
  int number = -1;

public:
  Socket() = default;
  explicit Socket(int fd) : number(fd) {}
  Socket(Socket &&other) noexcept : number(std::exchange(other.number, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(number, other.number);
    return *this;
  }
  ~Socket() { close(); }
  void close();
  int fd() const { return number; }
  explicit operator bool() const { return number >= 0; }
};

/// An IPv4 or IPv6 address with its port.
struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
  sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
  int port() const;
  void setPort(int port);
  bool isLoopback() const;
  /// The address that means every one of this host, of the same family.
  void setAny();
  std::string text() const;
};

/// The addresses of a name. Empty where it has none; `why` is then the resolver's text.
std::vector<Address> resolve(const std::string &host, int port, std::string &why);
/// Whether `host` is an address in digits.
bool isNumeric(const std::string &host);

Address ownAddress(const Socket &socket);
Address peerAddress(const Socket &socket);

/// Waits until `fd` is ready for `events` or `deadline` (Peers.h: nanoseconds()) has passed: false then.
bool waitFor(int fd, short events, int64_t deadline);

/// Both without blocking mode and without delay of small messages. `error` is an errno; no socket then.
Socket connectTo(const Address &address, int64_t deadline, int &error);
Socket listenOn(const Address &address, int backlog, int &error);
/// Sets the modes of every connection: no blocking, no delay, not inherited by programs that are started.
bool prepare(const Socket &socket);

/// All `bytes`, or false: the other side closed it, or the deadline has passed.
bool sendAll(const Socket &socket, const void *data, size_t bytes, int64_t deadline);
bool receiveAll(const Socket &socket, void *data, size_t bytes, int64_t deadline);

} // namespace mpt::rt

#endif
