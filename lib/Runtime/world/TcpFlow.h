// SPDX-License-Identifier: Apache-2.0
// One exchange with one peer over a socket: a header and parts each way, as far as the socket takes them.
#ifndef MPT_RUNTIME_WORLD_TCPFLOW_H
#define MPT_RUNTIME_WORLD_TCPFLOW_H

#include "world/Communicator.h"

#include <cstdint>

namespace mpt::rt {

/// The header before the parts.
struct MessageHeader {
  static constexpr uint32_t magicNumber = 0x5754504d;
  uint32_t magic = magicNumber;
  uint32_t kind = 0, bucket = 0, phase = 0;
  uint64_t step = 0, sequence = 0, bytes = 0;
  static MessageHeader of(const Tag &tag, int64_t bytes);
  Tag tag() const;
};

struct TcpFlow {
  struct Piece {
    uint8_t *data;
    int64_t bytes;
  };
  std::vector<Piece> out, in; // headers in front, nothing empty
  MessageHeader outHeader, inHeader;
  size_t outNext = 0, inNext = 0; // pieces that are done
  bool sends = false, receives = false, headerRead = false;
  int64_t outBytes = 0, inBytes = 0; // of the parts

  void add(const Outgoing &part);
  void add(const Incoming &part);
  /// After all parts; the flow must not be moved from then on.
  void begin(const Tag &tag);
  bool sending() const { return sends && outNext < out.size(); }
  bool receiving() const { return receives && inNext < in.size(); }

  enum class Result { Nothing, Some, Header, Closed };
  /// Moves as much as the socket takes without waiting, up to a limit that keeps other peers from waiting long. Header:
  /// the header has come, and is to be looked at before the rest is read.
  Result send(int fd, int64_t &moved);
  Result receive(int fd, int64_t &moved);
};

} // namespace mpt::rt

#endif
