// SPDX-License-Identifier: Apache-2.0
// Reading templates, and copying them with tensors in their places. lib/Import/Proto/TemplateBuilder.cpp finds these.
#include "core/TemplateFiller.h"

#include "core/Convert.h"
#include "core/Error.h"
#include "core/Types.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace mpt::rt {
namespace {

constexpr int64_t mostHeader = int64_t(1) << 30;
/// Bytes, and elements, that are in memory at a time.
constexpr int64_t pieceBytes = 1 << 20, pieceElements = 1 << 18;

/// A length as protobuf writes it.
std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7)
    text += static_cast<char>(value | 0x80);
  text += static_cast<char>(value);
  return text;
}

int64_t integerOf(const Json &json, const char *name) {
  const Json *found = json.find(name);
  return found && found->kind == Json::Number && found->integral ? found->integer : -1;
}

std::string textOf(const Json &json, const char *name) {
  const Json *found = json.find(name);
  return found && found->kind == Json::String ? found->string : "";
}

std::vector<int64_t> integersOf(const Json &json, const char *name) {
  std::vector<int64_t> numbers;
  const Json *found = json.find(name);
  if (found && found->kind == Json::Array)
    for (const Json &entry : found->array)
      numbers.push_back(entry.kind == Json::Number && entry.integral ? entry.integer : -1);
  return numbers;
}

/// A view of a state: elements are read from a copy of all of it.
class ViewSource {
public:
  ViewSource(TensorSource &source, const std::vector<int64_t> &extents, const std::vector<int64_t> &strides,
             int64_t offset, const std::vector<int64_t> &elements)
      : source(source), extents(extents), strides(strides), elements(elements), index(extents.size(), 0), at(offset) {}

  mpt_status open(const std::string &name, int64_t count, int64_t width) {
    size = width;
    whole.resize(static_cast<size_t>(count * width));
    for (int64_t begin = 0; begin < count; begin += pieceElements)
      if (mpt_status status =
              source.read(name, begin, std::min(pieceElements, count - begin), whole.data() + begin * width))
        return status;
    return MPT_OK;
  }

  void read(int64_t count, char *out) {
    for (int64_t i = 0; i < count; ++i) {
      if (!elements.empty())
        at = elements[next++];
      memcpy(out + i * size, whole.data() + at * size, static_cast<size_t>(size));
      for (size_t d = index.size(); d-- > 0;) {
        at += strides[d];
        if (++index[d] < extents[d])
          break;
        at -= strides[d] * extents[d];
        index[d] = 0;
      }
    }
  }

private:
  TensorSource &source;
  const std::vector<int64_t> &extents, &strides, &elements;
  std::vector<int64_t> index;
  size_t next = 0;
  int64_t at, size = 0;
  std::vector<char> whole;
};

} // namespace

TensorSource::~TensorSource() = default;

mpt_status Template::bad(const char *what) const {
  return fail(MPT_BAD_FILE, "'%s' is no template of a model file: %s; compile the model again", input.path(), what);
}

mpt_status Template::open(const char *path) {
  mpt_status status = input.open(path);
  return status ? status : start();
}

mpt_status Template::open(int descriptor, const char *path) {
  mpt_status status = input.open(descriptor, path);
  return status ? status : start();
}

static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

bool Template::parseView(const Json &json, Piece &piece) {
  piece.extents = integersOf(json, "extents");
  piece.strides = integersOf(json, "strides");
  piece.offset = json.find("offset") ? integerOf(json, "offset") : 0;
  piece.elements = integersOf(json, "elements");
  if (std::string function = textOf(json, "function"); !function.empty()) {
    piece.function = function == "exp"       ? static_cast<float (*)(float)>(std::exp)
                     : function == "sigmoid" ? sigmoid
                     : function == "tanh"    ? static_cast<float (*)(float)>(std::tanh)
                                             : nullptr;
    if (!piece.function)
      return false;
  }
  for (int64_t element : piece.elements)
    if (element < 0 || element == INT64_MAX || !piece.extents.empty())
      return false;
  if (!piece.elements.empty() && static_cast<int64_t>(piece.elements.size()) != piece.count)
    return false;
  int64_t count = 1;
  for (size_t i = 0; i < piece.extents.size() && piece.extents.size() == piece.strides.size(); ++i)
    if (piece.extents[i] < 1 || piece.strides[i] < 0 || __builtin_mul_overflow(count, piece.extents[i], &count))
      return false;
  return piece.extents.size() == piece.strides.size() && piece.offset >= 0 &&
         (piece.extents.empty() || count == piece.count);
}

/// `end` is where the next bytes of the template lie.
bool Template::parse(const Json &json, std::vector<Piece> &out, int64_t &end) {
  if (json.kind != Json::Array)
    return false;
  for (const Json &entry : json.array) {
    Piece piece;
    if (entry.kind == Json::Number) {
      piece.bytes = entry.integer;
      piece.begin = end;
      if (!entry.integral || piece.bytes < 0 || __builtin_add_overflow(end, piece.bytes, &end))
        return false;
    } else if (entry.kind == Json::Array) {
      piece.kind = Piece::Message;
      if (!parse(entry, piece.content, end))
        return false;
    } else if (entry.find("file")) {
      piece.kind = Piece::Location;
      piece.file = static_cast<size_t>(integerOf(entry, "file"));
      if (piece.file >= numFiles)
        return false;
    } else {
      piece.kind = Piece::Tensor;
      piece.state = textOf(entry, "state");
      piece.average = textOf(entry, "average");
      piece.type = integerOf(entry, "type");
      piece.count = integerOf(entry, "count");
      numAverages += !piece.average.empty();
      if (piece.state.empty() || piece.count < 0 || piece.count > (int64_t(1) << 50) ||
          mpt::rt::sizeOf(piece.type) <= 0 || !parseView(entry, piece))
        return false;
    }
    out.push_back(std::move(piece));
  }
  return true;
}

mpt_status Template::start() {
  uint64_t length = 0;
  if (!input.read(&length, sizeof length, 0) || length > static_cast<uint64_t>(mostHeader) ||
      static_cast<int64_t>(length) > input.size() - 8)
    return bad("its header does not fit the file");
  std::string text(length, '\0'), error;
  Json header;
  if (!input.read(text.data(), static_cast<int64_t>(length), 8) || !parseJson(text, header, error) ||
      textOf(header, "format") != "mpt-template")
    return bad("its header makes no sense");
  const Json *files = header.find("files");
  int64_t end = 8 + static_cast<int64_t>(length);
  numFiles = files && files->kind == Json::Array ? files->array.size() : 0;
  for (const Json &file : files && files->kind == Json::Array ? files->array : std::vector<Json>()) {
    Part part;
    part.location = textOf(file, "location");
    const Json *pieces = file.find("pieces");
    if (!pieces || !parse(*pieces, part.pieces, end) || part.location.empty() != parts.empty())
      return bad("its header makes no sense");
    parts.push_back(std::move(part));
  }
  return !parts.empty() && end == input.size() ? MPT_OK : bad("its length is not what its header says");
}

int64_t Template::sizeOfPieces(const std::vector<Piece> &pieces, const std::vector<std::string> &locations) {
  int64_t bytes = 0;
  for (const Piece &piece : pieces)
    switch (piece.kind) {
    case Piece::Bytes:
      bytes += piece.bytes;
      break;
    case Piece::Tensor:
      bytes += piece.count * mpt::rt::sizeOf(piece.type);
      break;
    case Piece::Location:
      bytes += static_cast<int64_t>(locations[piece.file].size());
      break;
    case Piece::Message: {
      int64_t content = sizeOfPieces(piece.content, locations);
      bytes += static_cast<int64_t>(varint(static_cast<uint64_t>(content)).size()) + content;
      break;
    }
    }
  return bytes;
}

mpt_status Template::putTensor(const Piece &piece, TensorSource &source, bool averaged, const Sink &sink) const {
  const std::string &name = averaged && !piece.average.empty() ? piece.average : piece.state;
  int64_t dtype = 0, count = 0;
  if (mpt_status status = source.describe(name, dtype, count))
    return status;
  int64_t needs = piece.isView() ? piece.offset + 1 : piece.count;
  for (int64_t element : piece.elements)
    needs = std::max(needs, element + 1);
  bool fits = true;
  for (size_t i = 0; i < piece.extents.size(); ++i) {
    int64_t reach = 0;
    fits &= !__builtin_mul_overflow(piece.extents[i] - 1, piece.strides[i], &reach) &&
            !__builtin_add_overflow(needs, reach, &needs);
  }
  if (!fits || (piece.isView() ? count < needs : count != needs))
    return fail(MPT_INCOMPATIBLE, "'%s': expected %lld elements, as the model file has, got %lld", name.c_str(),
                static_cast<long long>(needs), static_cast<long long>(count));
  const bool same = dtype == piece.type;
  if (!same && !(isFloating(dtype) && isFloating(piece.type)))
    return fail(MPT_INCOMPATIBLE, "'%s': expected %s, as the model file has, got %s", name.c_str(), nameOf(piece.type),
                nameOf(dtype));
  const int64_t from = mpt::rt::sizeOf(dtype), to = mpt::rt::sizeOf(piece.type);
  std::vector<char> raw(static_cast<size_t>(std::min(pieceElements, std::max<int64_t>(piece.count, 1)) * from)), out;
  std::vector<float> wide;
  const bool isView = piece.isView();
  ViewSource view(source, piece.extents, piece.strides, piece.offset, piece.elements);
  if (mpt_status status = isView ? view.open(name, count, from) : MPT_OK)
    return status;
  for (int64_t begin = 0; begin < piece.count; begin += pieceElements) {
    const int64_t some = std::min(pieceElements, piece.count - begin);
    if (isView)
      view.read(some, raw.data());
    else if (mpt_status status = source.read(name, begin, some, raw.data()))
      return status;
    const char *data = raw.data();
    if (!same || piece.function) {
      wide.resize(static_cast<size_t>(some));
      out.resize(static_cast<size_t>(some * to));
      toFloat(dtype, raw.data(), some, wide.data());
      if (piece.function)
        std::transform(wide.begin(), wide.end(), wide.begin(), piece.function);
      fromFloat(piece.type, wide.data(), some, out.data());
      data = out.data();
    }
    if (mpt_status status = sink(data, some * to))
      return status;
  }
  return MPT_OK;
}

mpt_status Template::put(const std::vector<Piece> &pieces, const std::vector<std::string> &locations,
                         TensorSource &source, bool averaged, const Sink &sink) const {
  std::vector<char> some;
  for (const Piece &piece : pieces) {
    mpt_status status = MPT_OK;
    switch (piece.kind) {
    case Piece::Bytes:
      some.resize(static_cast<size_t>(std::min(piece.bytes, pieceBytes)));
      for (int64_t done = 0; !status && done < piece.bytes; done += pieceBytes) {
        const int64_t bytes = std::min(pieceBytes, piece.bytes - done);
        if (!input.read(some.data(), bytes, piece.begin + done))
          return fail(MPT_IO_ERROR, "cannot read '%s': %s", input.path(), strerror(errno));
        status = sink(some.data(), bytes);
      }
      break;
    case Piece::Tensor:
      status = putTensor(piece, source, averaged, sink);
      break;
    case Piece::Location:
      status = sink(locations[piece.file].data(), static_cast<int64_t>(locations[piece.file].size()));
      break;
    case Piece::Message: {
      std::string length = varint(static_cast<uint64_t>(sizeOfPieces(piece.content, locations)));
      status = sink(length.data(), static_cast<int64_t>(length.size()));
      if (!status)
        status = put(piece.content, locations, source, averaged, sink);
      break;
    }
    }
    if (status)
      return status;
  }
  return MPT_OK;
}

mpt_status Template::write(size_t file, const std::vector<std::string> &locations, TensorSource &source, bool averaged,
                           const Sink &sink) const {
  return put(parts[file].pieces, locations, source, averaged, sink);
}

} // namespace mpt::rt
