// SPDX-License-Identifier: Apache-2.0
// Fields of protobuf's wire format, and rows of pieces.
#include "Pieces.h"

#include "llvm/ADT/STLExtras.h"

using llvm::StringRef;
using namespace mpt;
using namespace mpt::proto;

namespace {
enum WireType : uint32_t { Varint = 0, Fixed64 = 1, Delimited = 2, Fixed32 = 5 };
} // namespace

bool proto::takeVarint(StringRef &bytes, uint64_t &value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    auto byte = static_cast<uint8_t>(bytes.front());
    bytes = bytes.drop_front();
    value |= uint64_t(byte & 0x7f) << shift;
    if (byte < 0x80)
      return true;
  }
  return false;
}

std::optional<WireField> proto::nextField(StringRef &message) {
  WireField field;
  StringRef rest = message;
  uint64_t tag = 0, length = 0;
  if (!takeVarint(rest, tag))
    return std::nullopt;
  field.tag = message.take_front(message.size() - rest.size());
  field.number = static_cast<uint32_t>(tag >> 3);
  field.type = static_cast<uint32_t>(tag & 7);
  switch (field.type) {
  case Varint: {
    StringRef start = rest;
    if (!takeVarint(rest, field.varint))
      return std::nullopt;
    field.value = start.take_front(start.size() - rest.size());
    break;
  }
  case Delimited:
    if (!takeVarint(rest, length) || length > rest.size())
      return std::nullopt;
    field.value = rest.take_front(length);
    rest = rest.drop_front(length);
    break;
  case Fixed64:
  case Fixed32:
    length = field.type == Fixed64 ? 8 : 4;
    if (length > rest.size())
      return std::nullopt;
    field.value = rest.take_front(length);
    rest = rest.drop_front(length);
    break;
  default:
    return std::nullopt;
  }
  field.whole = message.take_front(message.size() - rest.size());
  message = rest;
  return field;
}

std::string proto::varintText(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7)
    text += static_cast<char>(value | 0x80);
  text += static_cast<char>(value);
  return text;
}

void Pieces::add(StringRef text) {
  if (text.empty())
    return;
  bytes += static_cast<int64_t>(text.size());
  // Texts that follow each other in the file are one piece.
  if (!pieces.empty() && pieces.back().kind == Piece::Bytes && pieces.back().text.end() == text.begin()) {
    pieces.back().text = StringRef(pieces.back().text.data(), pieces.back().text.size() + text.size());
    return;
  }
  Piece piece;
  piece.text = text;
  pieces.push_back(std::move(piece));
}

void Pieces::addOwn(std::string text) {
  owned.push_back(std::make_shared<std::string>(std::move(text)));
  add(StringRef(*owned.back()));
}

void Pieces::add(Place place) {
  bytes += place.bytes;
  Piece piece;
  piece.kind = Piece::Tensor;
  piece.place = std::move(place);
  pieces.push_back(std::move(piece));
}

void Pieces::addLocation(size_t file) {
  fixed = false;
  Piece piece;
  piece.kind = Piece::Location;
  piece.file = file;
  pieces.push_back(std::move(piece));
}

void Pieces::addMessage(StringRef tag, Pieces content, StringRef before) {
  add(tag);
  llvm::append_range(owned, content.owned);
  if (!content.fixed) {
    fixed = false;
    Piece piece;
    piece.kind = Piece::Message;
    piece.content = std::move(content.pieces);
    pieces.push_back(std::move(piece));
    return;
  }
  uint64_t was = 0;
  StringRef rest = before;
  if (takeVarint(rest, was) && was == static_cast<uint64_t>(content.bytes))
    add(before);
  else
    addOwn(varintText(static_cast<uint64_t>(content.bytes)));
  for (Piece &piece : content.pieces)
    if (piece.kind == Piece::Bytes) {
      add(piece.text);
    } else {
      bytes += piece.place.bytes;
      pieces.push_back(std::move(piece));
    }
}
