// SPDX-License-Identifier: Apache-2.0
// Data files as rows of pieces, and the template as one file.
#include "TemplateData.h"

#include "onnx/onnx_pb.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"

#include <map>

using namespace mpt;
using namespace mpt::proto;
using llvm::StringRef;
using ::onnx::TensorProto;
namespace json = llvm::json;

/// Where data that have shared theirs begin: on a page, as writers of large files place tensors.
static constexpr uint64_t movedAlignment = 4096;

int64_t proto::elementBytes(int32_t type) {
  switch (type) {
  case TensorProto::FLOAT:
  case TensorProto::INT32:
  case TensorProto::UINT32:
    return 4;
  case TensorProto::DOUBLE:
  case TensorProto::INT64:
  case TensorProto::UINT64:
    return 8;
  case TensorProto::FLOAT16:
  case TensorProto::BFLOAT16:
  case TensorProto::INT16:
  case TensorProto::UINT16:
    return 2;
  case TensorProto::FLOAT8E4M3FN:
  case TensorProto::FLOAT8E5M2:
  case TensorProto::INT8:
  case TensorProto::UINT8:
  case TensorProto::BOOL:
    return 1;
  default:
    return 0;
  }
}

TemplateData::TemplateData(StringRef model) : folder(llvm::sys::path::parent_path(model)) {}

llvm::Expected<size_t> TemplateData::fileOf(StringRef location) {
  for (auto [i, file] : llvm::enumerate(files))
    if (file.location == location)
      return i + 1;
  namespace paths = llvm::sys::path;
  if (paths::is_absolute(location) ||
      llvm::is_contained(llvm::make_range(paths::begin(location), paths::end(location)), ".."))
    return llvm::createStringError("expected external data in the model's folder, got location '" + location + "'");
  llvm::SmallString<256> path(folder);
  paths::append(path, location);
  auto opened = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!opened)
    return llvm::createStringError("cannot read external data '" + path + "': " + opened.getError().message());
  files.push_back({location.str(), std::move(*opened), {}, {}});
  return files.size();
}

uint64_t TemplateData::take(size_t file, StringRef path, DataRange range, std::optional<Place> place) {
  if (settled) {
    auto moved = offsets.find(path);
    return moved == offsets.end() ? range.offset : moved->second;
  }
  if (file && range.bytes)
    files[file - 1].tensors.push_back({path.str(), range, std::move(place)});
  return range.offset;
}

void TemplateData::settle(File &file) {
  StringRef bytes = file.bytes->getBuffer();
  std::map<uint64_t, const Taken *> places; // by offset: they do not overlap
  auto isFree = [&](const Taken &tensor) {
    auto next = places.lower_bound(tensor.range.offset);
    if (next != places.end() && next->first < tensor.range.offset + tensor.range.bytes)
      return false;
    if (next == places.begin())
      return true;
    --next;
    return next->first + next->second->range.bytes <= tensor.range.offset;
  };
  uint64_t end = bytes.size();
  std::vector<std::pair<uint64_t, const Taken *>> moved;
  for (bool saved : {true, false})
    for (const Taken &tensor : file.tensors) {
      if (tensor.place.has_value() != saved)
        continue;
      if (isFree(tensor)) {
        if (saved)
          places[tensor.range.offset] = &tensor;
        continue;
      }
      end = llvm::alignTo(end, movedAlignment);
      offsets[tensor.path] = end;
      moved.emplace_back(end, &tensor);
      end += tensor.range.bytes;
    }
  uint64_t done = 0;
  for (const auto &[offset, tensor] : places) {
    file.pieces.add(bytes.slice(done, offset));
    file.pieces.add(*tensor->place);
    done = offset + tensor->range.bytes;
  }
  file.pieces.add(bytes.drop_front(std::min<uint64_t>(done, bytes.size())));
  for (const auto &[offset, tensor] : moved) {
    file.pieces.addOwn(std::string(offset - file.pieces.size(), '\0'));
    if (tensor->place)
      file.pieces.add(*tensor->place);
    else
      file.pieces.add(bytes.substr(tensor->range.offset, tensor->range.bytes));
  }
}

void TemplateData::settle() {
  for (File &file : files)
    settle(file);
  settled = true;
}

/// Describes pieces, and gives their bytes to `use` in order.
static json::Array describe(llvm::ArrayRef<Piece> pieces, llvm::function_ref<void(StringRef)> use) {
  json::Array result;
  int64_t bytes = 0;
  auto flush = [&] {
    if (bytes)
      result.push_back(bytes);
    bytes = 0;
  };
  for (const Piece &piece : pieces) {
    if (piece.kind == Piece::Bytes) {
      use(piece.text);
      bytes += static_cast<int64_t>(piece.text.size());
      continue;
    }
    flush();
    if (piece.kind == Piece::Message) {
      result.push_back(describe(piece.content, use));
    } else if (piece.kind == Piece::Location) {
      result.push_back(json::Object{{"file", static_cast<int64_t>(piece.file)}});
    } else {
      const Place &place = piece.place;
      json::Object tensor{{"state", place.source}, {"type", place.type}, {"count", place.count}};
      if (!place.average.empty())
        tensor["average"] = place.average;
      if (!place.view.function.empty())
        tensor["function"] = place.view.function;
      if (!place.view.elements.empty()) {
        tensor["elements"] = json::Array(place.view.elements);
      } else if (!place.view.extents.empty()) {
        tensor["extents"] = json::Array(place.view.extents);
        tensor["strides"] = json::Array(place.view.strides);
        tensor["offset"] = place.view.offset;
      }
      result.push_back(std::move(tensor));
    }
  }
  flush();
  return result;
}

llvm::Error TemplateData::write(const Pieces &model, StringRef out) {
  std::vector<StringRef> bytes;
  auto use = [&](StringRef text) { bytes.push_back(text); };
  json::Array all{json::Object{{"location", ""}, {"pieces", describe(model.list(), use)}}};
  for (const File &file : files)
    all.push_back(json::Object{{"location", file.location}, {"pieces", describe(file.pieces.list(), use)}});
  std::string header;
  llvm::raw_string_ostream(header) << json::Value(json::Object{{"format", "mpt-template"}, {"files", std::move(all)}});
  std::error_code code;
  llvm::raw_fd_ostream stream(out, code);
  if (code)
    return llvm::createStringError(code, "cannot write '" + out + "': " + code.message());
  uint64_t length = header.size();
  stream.write(reinterpret_cast<const char *>(&length), sizeof length);
  stream << header;
  for (StringRef text : bytes)
    stream << text;
  stream.close();
  if (!stream.has_error())
    return llvm::Error::success();
  code = stream.error();
  stream.clear_error();
  return llvm::createStringError(code, "cannot write '" + out + "': " + code.message());
}
