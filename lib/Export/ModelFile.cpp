// SPDX-License-Identifier: Apache-2.0
// Writing of model files piece by piece.
#include "ModelFile.h"

#include "mpt/Support/Files.h"
#include "mpt/Support/MappedFiles.h"
#include "mpt/Support/NarrowFloat.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"

#include "google/protobuf/io/coded_stream.h"

using namespace mlir;
using namespace mpt;
namespace pb = ::ONNX_NAMESPACE;
using google::protobuf::io::CodedOutputStream;

namespace {

// Field numbers of onnx.proto; all of these fields are length-delimited.
constexpr uint32_t graphOfModel = 7, nodeOfGraph = 1, initializerOfGraph = 5, valueInfoOfGraph = 13, rawOfTensor = 9;
/// Elements converted, and bytes copied, at a time.
constexpr size_t chunkElements = size_t(1) << 20;
constexpr uint64_t inlineLimit = uint64_t(1) << 30, externalBytes = 1024;

void appendHead(std::string &bytes, uint32_t field, uint64_t length) {
  uint8_t buffer[20];
  uint8_t *end = CodedOutputStream::WriteVarint32ToArray((field << 3) | 2, buffer);
  end = CodedOutputStream::WriteVarint64ToArray(length, end);
  bytes.append(reinterpret_cast<char *>(buffer), end - buffer);
}

void appendMessage(std::string &bytes, uint32_t field, const google::protobuf::MessageLite &message) {
  appendHead(bytes, field, message.ByteSizeLong());
  message.AppendToString(&bytes);
}

/// The contents where they lie; nothing for splats and booleans.
ArrayRef<char> storedBytes(ElementsAttr value) {
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    return dense.isSplat() || dense.getElementType().isInteger(1) ? ArrayRef<char>() : dense.getRawData();
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value))
    if (AsmResourceBlob *blob = resource.getRawHandle().getBlob())
      return blob->getData();
  return {};
}

LogicalResult writeAt(Location loc, StringRef path, llvm::function_ref<void(raw_ostream &)> print) {
  if (llvm::Error error = writeFile(path, print))
    return emitError(loc) << llvm::toString(std::move(error));
  return success();
}

} // namespace

void mpt::appendRaw(ElementsAttr value, std::string &raw) {
  Type element = value.getElementType();
  int64_t count = value.getNumElements();
  if (element.isInteger(1)) {
    for (bool bit : value.getValues<bool>())
      raw.push_back(bit ? 1 : 0);
    return;
  }
  size_t width = element.getIntOrFloatBitWidth() / 8;
  ArrayRef<char> bytes;
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    bytes = dense.getRawData();
  else
    bytes = storedBytes(value);
  if (bytes.size() == static_cast<size_t>(count) * width) {
    raw.append(bytes.data(), bytes.size());
    return;
  }
  raw.reserve(raw.size() + count * width);
  for (int64_t i = 0; i < count && bytes.size() >= width; ++i)
    raw.append(bytes.data(), width);
}

uint64_t TensorPayload::bytes() const {
  return static_cast<uint64_t>(value.getNumElements()) * llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

/// Appends the elements in chunks, narrowed where `element` is narrower; one element stands for all of a splat.
void TensorPayload::write(raw_ostream &out, const MappedFiles *files) const {
  ArrayRef<char> data = storedBytes(value);
  std::string copy;
  bool narrows = value.getElementType() != element;
  size_t step = chunkElements * (narrows ? sizeof(float) : 1);
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (data.empty() && dense && dense.isSplat() && !dense.getElementType().isInteger(1)) {
    // A buffer of equal elements, written as often as it takes.
    size_t width = dense.getRawData().size(), total = static_cast<size_t>(value.getNumElements()) * width;
    size_t count = std::min(total, step / width * width);
    for (size_t at = 0; at < count; at += width)
      copy.append(dense.getRawData().data(), width);
    for (size_t left = total; left > 0; left -= std::min(left, count))
      writeChunk(out, ArrayRef<char>(copy.data(), std::min(left, count)));
    return;
  }
  if (data.empty()) {
    appendRaw(value, copy);
    data = ArrayRef<char>(copy.data(), copy.size());
  }
  for (size_t at = 0; at < data.size(); at += step) {
    ArrayRef<char> chunk = data.slice(at, std::min(step, data.size() - at));
    writeChunk(out, chunk);
    if (files)
      files->release(chunk.data(), chunk.size());
  }
}

void TensorPayload::writeChunk(raw_ostream &out, ArrayRef<char> chunk) const {
  if (value.getElementType() == element) {
    out.write(chunk.data(), chunk.size());
    return;
  }
  size_t count = chunk.size() / sizeof(float);
  std::vector<uint16_t> converted(count);
  auto *numbers = reinterpret_cast<const float *>(chunk.data());
  (element.isF16() ? narrowToFloat16 : narrowToBFloat16)(numbers, converted.data(), count);
  out.write(reinterpret_cast<const char *>(converted.data()), count * sizeof(uint16_t));
}

void ModelFile::addNode(const pb::NodeProto &node) { appendMessage(last(), nodeOfGraph, node); }
void ModelFile::addValueInfo(const pb::ValueInfoProto &info) { appendMessage(last(), valueInfoOfGraph, info); }

void ModelFile::addInitializer(pb::TensorProto tensor, TensorPayload payload) {
  if (!payload.value) {
    appendMessage(last(), initializerOfGraph, tensor);
    return;
  }
  last();
  pieces.back().payload = static_cast<int64_t>(initializers.size());
  initializers.push_back({std::move(tensor), payload});
}

LogicalResult ModelFile::writeData(StringRef path, Location loc) {
  std::string file = llvm::sys::path::filename(path).str();
  MappedFiles files;
  return writeAt(loc, path, [&](raw_ostream &out) {
    uint64_t offset = 0;
    for (auto &[tensor, payload] : initializers) {
      uint64_t bytes = payload.bytes();
      if (bytes < externalBytes)
        continue;
      // Whole pages for tensors that are worth mapping, cache lines for the rest.
      uint64_t start = llvm::alignTo(offset, bytes >= 65536 ? 4096 : 64);
      out.write_zeros(start - offset);
      payload.write(out, &files);
      auto add = [&tensor = tensor](const char *key, std::string value) {
        pb::StringStringEntryProto &entry = *tensor.add_external_data();
        entry.set_key(key);
        entry.set_value(std::move(value));
      };
      add("location", file);
      add("offset", std::to_string(start));
      add("length", std::to_string(bytes));
      tensor.set_data_location(pb::TensorProto::EXTERNAL);
      offset = start + bytes;
    }
  });
}

LogicalResult ModelFile::write(const pb::ModelProto &model, StringRef path, bool external, Location loc) {
  uint64_t total = 0;
  for (const Initializer &initializer : initializers)
    total += initializer.payload.bytes();
  // Without a tensor that goes there the second file would be empty.
  external = (external || total > inlineLimit) && llvm::any_of(initializers, [](const Initializer &initializer) {
               return initializer.payload.bytes() >= externalBytes;
             });
  if (external && failed(writeData((path + ".data").str(), loc)))
    return failure();
  auto isInline = [](const Initializer &initializer) {
    return initializer.tensor.data_location() != pb::TensorProto::EXTERNAL;
  };
  /// The bytes before an initializer's elements: its field's head, its other fields, the head of its elements.
  auto headOf = [&](const Initializer &initializer) {
    std::string fields = initializer.tensor.SerializeAsString(), head;
    uint64_t bytes = isInline(initializer) ? initializer.payload.bytes() : 0;
    if (isInline(initializer))
      appendHead(fields, rawOfTensor, bytes);
    appendHead(head, initializerOfGraph, fields.size() + bytes);
    return head + fields;
  };
  uint64_t length = 0;
  for (const Piece &piece : pieces) {
    length += piece.bytes.size();
    if (piece.payload < 0)
      continue;
    const Initializer &initializer = initializers[piece.payload];
    length += headOf(initializer).size() + (isInline(initializer) ? initializer.payload.bytes() : 0);
  }
  MappedFiles files;
  return writeAt(loc, path, [&](raw_ostream &out) {
    std::string head = model.SerializeAsString();
    appendHead(head, graphOfModel, length);
    out << head;
    for (const Piece &piece : pieces) {
      out << piece.bytes;
      if (piece.payload < 0)
        continue;
      const Initializer &initializer = initializers[piece.payload];
      out << headOf(initializer);
      if (isInline(initializer))
        initializer.payload.write(out, &files);
    }
  });
}
