// SPDX-License-Identifier: Apache-2.0
// The pieces of a template: bytes as they are, places for tensors, and messages around them; fields of the wire
// format.
#ifndef MPT_LIB_IMPORT_PROTO_PIECES_H
#define MPT_LIB_IMPORT_PROTO_PIECES_H

#include "mpt/Import/Template.h"

#include "llvm/ADT/StringRef.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mpt::proto {

/// One field of a message in the file.
struct WireField {
  uint32_t number = 0, type = 0;
  llvm::StringRef whole; ///< tag and value
  llvm::StringRef tag;   ///< without the length
  llvm::StringRef value; ///< of a length-delimited field its content
  uint64_t varint = 0;
};

/// Reads the next field of `message` and drops it there; nothing at the end, or where the bytes are no field.
std::optional<WireField> nextField(llvm::StringRef &message);

/// Drops a varint at the start of `bytes`; false where there is none.
bool takeVarint(llvm::StringRef &bytes, uint64_t &value);
std::string varintText(uint64_t value);

/// The elements of one tensor in a file.
struct Place {
  std::string source, average;
  int32_t type = 0; ///< ONNX data type
  int64_t count = 0, bytes = 0;
  TensorView view; ///< of the source, where the tensor is not all of it
};

struct Piece {
  enum Kind { Bytes, Tensor, Location, Message } kind = Bytes;
  llvm::StringRef text;       ///< Bytes
  Place place;                ///< Tensor
  size_t file = 0;            ///< Location: whose name
  std::vector<Piece> content; ///< Message: its length and this
};

/// A row of pieces, and the bytes that they are; a length is not known here where names of files are within.
class Pieces {
public:
  void add(llvm::StringRef bytes);
  /// Bytes that are not the file's.
  void addOwn(std::string bytes);
  void add(Place place);
  void addLocation(size_t file);
  /// `tag`, then the length and content of a message; `before` is the length as the file writes it.
  void addMessage(llvm::StringRef tag, Pieces content, llvm::StringRef before);

  bool isFixed() const { return fixed; }
  int64_t size() const { return bytes; }
  const std::vector<Piece> &list() const { return pieces; }

private:
  std::vector<Piece> pieces;
  std::vector<std::shared_ptr<std::string>> owned;
  bool fixed = true;
  int64_t bytes = 0;
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_PIECES_H
