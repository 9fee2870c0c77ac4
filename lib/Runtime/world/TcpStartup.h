// SPDX-License-Identifier: Apache-2.0
// How ranks find each other over TCP: all come to rank 0, learn where the others are, and connect to them.
#ifndef MPT_RUNTIME_WORLD_TCPSTARTUP_H
#define MPT_RUNTIME_WORLD_TCPSTARTUP_H

#include "world/Peers.h"
#include "world/Socket.h"

namespace mpt::rt {

struct TcpOptions {
  int rank = 0, size = 1;
  std::string address; // of rank 0
  int port = 0;
  std::string token;
  Times times;
};

/// Two connections to each peer. Notices have their own, so that they do not wait behind values that nobody reads yet.
struct TcpLink {
  Socket control, data;
};

/// Connects this rank with all others; links of itself stay empty. MPT_PEER_LOST names ranks that did not come.
Failure connectRanks(const TcpOptions &options, std::vector<TcpLink> &links);

} // namespace mpt::rt

#endif
