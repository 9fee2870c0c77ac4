// SPDX-License-Identifier: Apache-2.0
// Where a rank waits for connections of other ranks, and turns strangers away.
#ifndef MPT_RUNTIME_WORLD_DOOR_H
#define MPT_RUNTIME_WORLD_DOOR_H

#include "world/Socket.h"

#include <deque>

namespace mpt::rt {

/// The first bytes of every connection, from who connects. Of one size: nothing that a stranger sends is a length.
struct Hello {
  enum Channel : uint32_t { Join = 1, Control, Data };
  enum : uint32_t { Version = 1 };
  char magic[8] = {'M', 'P', 'T', 'W', 'O', 'R', 'L', 'D'};
  uint32_t version = Version;
  uint32_t channel = Join;
  int32_t rank = 0, size = 0;
  int32_t port = 0; // where the sender waits for others, of Join
  uint32_t unused = 0;
  uint64_t world = 0; // the number that rank 0 gave this world, of the others
  char token[256] = {};
};

class Door {
public:
  /// `error` is an errno.
  bool open(const Address &address, int backlog, int &error);
  Address address() const { return ownAddress(listener); }

  /// Waits for the next connection that says who it is and knows the token. False when the deadline has passed.
  bool accept(const std::string &token, Hello &hello, Socket &socket, int64_t deadline);

  /// Connections that were turned away.
  int strangers() const { return refused; }

private:
  struct Guest {
    Socket socket;
    Hello hello;
    size_t got;
    int64_t deadline;
  };
  enum class Reading { More, Complete, Over };
  void admit();
  Reading read(Guest &guest);

  Socket listener;
  std::deque<Guest> guests; // that have not said all, the oldest first
  int refused = 0;
};

} // namespace mpt::rt

#endif
