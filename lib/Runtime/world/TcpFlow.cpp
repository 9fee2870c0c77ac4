// SPDX-License-Identifier: Apache-2.0
// Moves pieces of messages through sockets that do not block.
#include "world/TcpFlow.h"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

using namespace mpt::rt;

static constexpr int64_t turnBytes = 1 << 20;

MessageHeader MessageHeader::of(const Tag &tag, int64_t bytes) {
  MessageHeader header;
  header.kind = tag.kind;
  header.bucket = tag.bucket;
  header.phase = tag.phase;
  header.step = tag.step;
  header.sequence = tag.sequence;
  header.bytes = static_cast<uint64_t>(bytes);
  return header;
}

Tag MessageHeader::tag() const { return {kind, bucket, step, sequence, phase}; }

void TcpFlow::add(const Outgoing &part) {
  sends = true;
  outBytes += part.bytes;
  if (part.bytes)
    out.push_back({static_cast<uint8_t *>(const_cast<void *>(part.data)), part.bytes});
}

void TcpFlow::add(const Incoming &part) {
  receives = true;
  inBytes += part.bytes;
  if (part.bytes)
    in.push_back({static_cast<uint8_t *>(part.data), part.bytes});
}

void TcpFlow::begin(const Tag &tag) {
  outHeader = MessageHeader::of(tag, outBytes);
  out.insert(out.begin(), {reinterpret_cast<uint8_t *>(&outHeader), sizeof outHeader});
  in.insert(in.begin(), {reinterpret_cast<uint8_t *>(&inHeader), sizeof inHeader});
}

TcpFlow::Result TcpFlow::send(int fd, int64_t &moved) {
  for (moved = 0; outNext < out.size() && moved < turnBytes;) {
    Piece &piece = out[outNext];
    if (piece.bytes > 0) {
      // The system waits with a header for the values behind it.
      ssize_t sent = ::send(fd, piece.data, static_cast<size_t>(std::min(piece.bytes, turnBytes)),
                            MSG_NOSIGNAL | (outNext + 1 < out.size() ? MSG_MORE : 0));
      if (sent < 0 && errno == EINTR)
        continue;
      if (sent < 0)
        return errno != EAGAIN ? Result::Closed : moved ? Result::Some : Result::Nothing;
      piece.data += sent;
      piece.bytes -= sent;
      moved += sent;
    }
    if (piece.bytes == 0)
      ++outNext;
  }
  return Result::Some;
}

TcpFlow::Result TcpFlow::receive(int fd, int64_t &moved) {
  for (moved = 0; inNext < in.size() && moved < turnBytes;) {
    Piece &piece = in[inNext];
    if (piece.bytes > 0) {
      ssize_t got = recv(fd, piece.data, static_cast<size_t>(std::min(piece.bytes, turnBytes)), 0);
      if (got < 0 && errno == EINTR)
        continue;
      if (got == 0 || (got < 0 && errno != EAGAIN))
        return Result::Closed;
      if (got < 0)
        return moved ? Result::Some : Result::Nothing;
      piece.data += got;
      piece.bytes -= got;
      moved += got;
    }
    if (piece.bytes == 0 && ++inNext == 1 && !headerRead) {
      headerRead = true;
      return Result::Header;
    }
  }
  return Result::Some;
}
