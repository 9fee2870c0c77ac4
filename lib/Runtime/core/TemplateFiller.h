// SPDX-License-Identifier: Apache-2.0
// Templates of model files: bytes as they are, with places for tensors of the state. The form: docs/onnx.md.
#ifndef MPT_RUNTIME_CORE_TEMPLATEFILLER_H
#define MPT_RUNTIME_CORE_TEMPLATEFILLER_H

#include "core/Json.h"

#include "core/InputFile.h"

#include "mpt-c/runtime.h"

#include <functional>
#include <string>
#include <vector>

namespace mpt::rt {

/// Where the values of tensors come from.
class TensorSource {
public:
  virtual ~TensorSource();
  /// The type and number of elements of tensor `name`; MPT_NOT_FOUND where there is none.
  virtual mpt_status describe(const std::string &name, int64_t &dtype, int64_t &count) = 0;
  /// Reads `count` elements from number `begin` on, in their type. Calls for a tensor come in order.
  virtual mpt_status read(const std::string &name, int64_t begin, int64_t count, void *out) = 0;
};

/// A template that is open. Only pieces of tensors are in memory.
class Template {
public:
  Template() = default;
  Template(const Template &) = delete;

  mpt_status open(const char *path);
  /// Reads the open file `descriptor`, which stays the caller's; `path` is for errors.
  mpt_status open(int descriptor, const char *path);

  /// Files: the model, then its data files.
  size_t files() const { return parts.size(); }
  /// Relative to the model's folder; empty for the model.
  const std::string &location(size_t file) const { return parts[file].location; }

  using Sink = std::function<mpt_status(const void *, int64_t)>;
  /// Writes a file with the tensors of `source`, or with `averaged` their averages where there are any. `locations`
  /// are the names that the model says for its data files.
  mpt_status write(size_t file, const std::vector<std::string> &locations, TensorSource &source, bool averaged,
                   const Sink &sink) const;
  /// How many tensors have an average.
  int64_t averages() const { return numAverages; }

private:
  struct Piece {
    enum Kind { Bytes, Tensor, Location, Message } kind = Bytes;
    int64_t bytes = 0, begin = 0; // Bytes: how many, and where in the file
    std::string state, average;
    int64_t type = 0, count = 0;
    std::vector<int64_t> extents, strides; // of a view of the state; none where it has all of it
    int64_t offset = 0;
    std::vector<int64_t> elements; // which of the state's, one by one, where no strides say it

    float (*function)(float) = nullptr; // of each element of the view

    bool isView() const { return !extents.empty() || !elements.empty() || function; }
    size_t file = 0;
    std::vector<Piece> content;
  };
  struct Part {
    std::string location;
    std::vector<Piece> pieces;
  };

  mpt_status start();
  mpt_status bad(const char *what) const;
  bool parse(const Json &json, std::vector<Piece> &out, int64_t &end);
  mpt_status put(const std::vector<Piece> &pieces, const std::vector<std::string> &locations, TensorSource &source,
                 bool averaged, const Sink &sink) const;
  mpt_status putTensor(const Piece &piece, TensorSource &source, bool averaged, const Sink &sink) const;
  static bool parseView(const Json &json, Piece &piece);
  static int64_t sizeOfPieces(const std::vector<Piece> &pieces, const std::vector<std::string> &locations);

  InputFile input;
  std::vector<Part> parts;
  size_t numFiles = 0; // that the header has
  int64_t numAverages = 0;
};

} // namespace mpt::rt

#endif
