// SPDX-License-Identifier: Apache-2.0
// Thin calls of the system's sockets.
#include "world/Socket.h"

#include "world/Peers.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

using namespace mpt::rt;

void Socket::close() {
  if (number >= 0)
    ::close(number);
  number = -1;
}

static sockaddr_in *v4(Address &address) { return reinterpret_cast<sockaddr_in *>(&address.storage); }
static sockaddr_in6 *v6(Address &address) { return reinterpret_cast<sockaddr_in6 *>(&address.storage); }
static const sockaddr_in *v4(const Address &address) { return reinterpret_cast<const sockaddr_in *>(&address.storage); }
static const sockaddr_in6 *v6(const Address &address) {
  return reinterpret_cast<const sockaddr_in6 *>(&address.storage);
}

int Address::port() const { return ntohs(storage.ss_family == AF_INET6 ? v6(*this)->sin6_port : v4(*this)->sin_port); }

void Address::setPort(int port) {
  (storage.ss_family == AF_INET6 ? v6(*this)->sin6_port : v4(*this)->sin_port) = htons(static_cast<uint16_t>(port));
}

bool Address::isLoopback() const {
  if (storage.ss_family == AF_INET)
    return ntohl(v4(*this)->sin_addr.s_addr) >> 24 == 127;
  return memcmp(&v6(*this)->sin6_addr, &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

void Address::setAny() {
  if (storage.ss_family == AF_INET)
    v4(*this)->sin_addr.s_addr = htonl(INADDR_ANY);
  else
    v6(*this)->sin6_addr = in6addr_any;
}

std::string Address::text() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(get(), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return std::string(host) + ":" + std::to_string(port());
}

static std::vector<Address> lookUp(const std::string &host, int port, int flags, std::string &why) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  std::vector<Address> addresses;
  if (int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found)) {
    why = gai_strerror(error);
    return addresses;
  }
  for (addrinfo *entry = found; entry; entry = entry->ai_next)
    if (entry->ai_addrlen <= sizeof(sockaddr_storage)) {
      addresses.emplace_back();
      memcpy(&addresses.back().storage, entry->ai_addr, entry->ai_addrlen);
      addresses.back().length = entry->ai_addrlen;
    }
  freeaddrinfo(found);
  return addresses;
}

std::vector<Address> mpt::rt::resolve(const std::string &host, int port, std::string &why) {
  return lookUp(host, port, 0, why);
}

bool mpt::rt::isNumeric(const std::string &host) {
  std::string why;
  return !lookUp(host, 0, AI_NUMERICHOST, why).empty();
}

Address mpt::rt::ownAddress(const Socket &socket) {
  Address address;
  address.length = sizeof address.storage;
  getsockname(socket.fd(), address.get(), &address.length);
  return address;
}

Address mpt::rt::peerAddress(const Socket &socket) {
  Address address;
  address.length = sizeof address.storage;
  getpeername(socket.fd(), address.get(), &address.length);
  return address;
}

bool mpt::rt::waitFor(int fd, short events, int64_t deadline) {
  for (;;) {
    int64_t left = (deadline - nanoseconds()) / 1000000;
    pollfd entry = {fd, events, 0};
    int ready = poll(&entry, 1, static_cast<int>(std::max<int64_t>(0, std::min<int64_t>(left, 1000))));
    if (ready > 0)
      return true;
    if ((ready < 0 && errno != EINTR) || left <= 0)
      return false;
  }
}

bool mpt::rt::prepare(const Socket &socket) {
  int on = 1, flags = fcntl(socket.fd(), F_GETFL);
  return flags >= 0 && fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK) == 0 &&
         fcntl(socket.fd(), F_SETFD, FD_CLOEXEC) == 0 &&
         setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
}

Socket mpt::rt::connectTo(const Address &address, int64_t deadline, int &error) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  error = 0;
  if (!socket || !prepare(socket)) {
    error = errno;
    return {};
  }
  if (connect(socket.fd(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) {
      error = errno;
      return {};
    }
    socklen_t length = sizeof error;
    if (!waitFor(socket.fd(), POLLOUT, deadline))
      error = ETIMEDOUT;
    else
      getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  }
  return error ? Socket() : std::move(socket);
}

Socket mpt::rt::listenOn(const Address &address, int backlog, int &error) {
  Socket socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int on = 1;
  error = 0;
  // A world that is started again at once finds the port of the last one waiting for stray packets.
  if (!socket || setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(socket.fd(), address.get(), address.length) != 0 || listen(socket.fd(), backlog) != 0) {
    error = errno;
    return {};
  }
  return socket;
}

bool mpt::rt::sendAll(const Socket &socket, const void *data, size_t bytes, int64_t deadline) {
  auto *from = static_cast<const uint8_t *>(data);
  while (bytes) {
    ssize_t sent = send(socket.fd(), from, bytes, MSG_NOSIGNAL);
    if (sent > 0) {
      from += sent;
      bytes -= static_cast<size_t>(sent);
    } else if (errno != EINTR && (errno != EAGAIN || !waitFor(socket.fd(), POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

bool mpt::rt::receiveAll(const Socket &socket, void *data, size_t bytes, int64_t deadline) {
  auto *to = static_cast<uint8_t *>(data);
  while (bytes) {
    ssize_t got = recv(socket.fd(), to, bytes, 0);
    if (got > 0) {
      to += got;
      bytes -= static_cast<size_t>(got);
    } else if (got == 0 || (errno != EINTR && (errno != EAGAIN || !waitFor(socket.fd(), POLLIN, deadline)))) {
      return false;
    }
  }
  return true;
}
