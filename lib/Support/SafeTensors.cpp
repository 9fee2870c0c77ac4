// SPDX-License-Identifier: Apache-2.0
// The safetensors format over llvm::json and mapped files.
#include "mpt/Support/SafeTensors.h"

#include "mpt/Support/Files.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mpt;

StringRef mpt::safeTensorsName(Type type) {
  if (isa<FloatType>(type)) {
    if (type.isF64())
      return "F64";
    if (type.isF32())
      return "F32";
    if (type.isF16())
      return "F16";
    if (type.isBF16())
      return "BF16";
    if (isa<Float8E4M3FNType>(type))
      return "F8_E4M3";
    return isa<Float8E5M2Type>(type) ? "F8_E5M2" : "";
  }
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return "";
  switch (integer.getWidth()) {
  case 1:
    return "BOOL";
  case 8:
    return integer.isUnsigned() ? "U8" : "I8";
  case 16:
    return integer.isUnsigned() ? "U16" : "I16";
  case 32:
    return integer.isUnsigned() ? "U32" : "I32";
  case 64:
    return integer.isUnsigned() ? "U64" : "I64";
  default:
    return "";
  }
}

Type mpt::safeTensorsType(StringRef name, MLIRContext *context) {
  Builder builder(context);
  Type real = llvm::StringSwitch<Type>(name)
                  .Case("F64", builder.getF64Type())
                  .Case("F32", builder.getF32Type())
                  .Case("F16", builder.getF16Type())
                  .Case("BF16", builder.getBF16Type())
                  .Case("F8_E4M3", Float8E4M3FNType::get(context))
                  .Case("F8_E5M2", Float8E5M2Type::get(context))
                  .Case("BOOL", builder.getI1Type())
                  .Default(Type());
  unsigned width = 0;
  if (real || name.size() < 2 || name.drop_front().getAsInteger(10, width))
    return real;
  if (width != 8 && width != 16 && width != 32 && width != 64)
    return Type();
  if (name.front() == 'I')
    return builder.getIntegerType(width);
  return name.front() == 'U' ? builder.getIntegerType(width, /*isSigned=*/false) : Type();
}

static llvm::Error problem(StringRef path, const Twine &text) { return llvm::createStringError(path + ": " + text); }

/// Bytes of a tensor, none where an extent is negative or the product overflows.
static std::optional<int64_t> bytesOf(ArrayRef<int64_t> shape, Type element) {
  int64_t bytes = llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
  for (int64_t extent : shape)
    if (extent < 0 || llvm::MulOverflow(bytes, extent, bytes))
      return std::nullopt;
  return bytes;
}

llvm::Expected<SafeTensorsFile> SafeTensorsFile::open(StringRef path, MLIRContext *context) {
  auto opened = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!opened)
    return problem(path, opened.getError().message());
  SafeTensorsFile file;
  file.buffer = std::move(*opened);
  StringRef all = file.buffer->getBuffer();
  uint64_t length = 0;
  if (all.size() >= 8)
    memcpy(&length, all.data(), 8);
  if (all.size() < 8 || length > all.size() - 8)
    return problem(path, "expected a safetensors header within the file");
  StringRef data = all.drop_front(8 + length);
  auto header = llvm::json::parse(all.substr(8, length));
  if (!header)
    return problem(path, "header is not JSON: " + llvm::toString(header.takeError()));
  const llvm::json::Object *object = header->getAsObject();
  if (!object)
    return problem(path, "expected a JSON object as header");
  for (const auto &[key, value] : *object) {
    const llvm::json::Object *entry = value.getAsObject();
    if (!entry)
      return problem(path, "expected an object for entry " + key.str());
    if (key == "__metadata__") {
      for (const auto &[name, text] : *entry)
        file.notes[name.str()] = text.getAsString().value_or("").str();
      continue;
    }
    Type element = safeTensorsType(entry->getString("dtype").value_or(""), context);
    const llvm::json::Array *extents = entry->getArray("shape"), *offsets = entry->getArray("data_offsets");
    if (!element || !extents || !offsets || offsets->size() != 2)
      return problem(path, "expected a known dtype, a shape and two data_offsets for tensor " + key.str());
    SmallVector<int64_t> shape;
    for (const llvm::json::Value &extent : *extents)
      shape.push_back(extent.getAsInteger().value_or(-1));
    std::optional<int64_t> bytes = bytesOf(shape, element);
    if (!bytes)
      return problem(path,
                     "expected extents that are not negative and a size that fits 64 bits for tensor " + key.str());
    int64_t begin = (*offsets)[0].getAsInteger().value_or(-1), end = (*offsets)[1].getAsInteger().value_or(-1);
    if (begin < 0 || end < begin || end > static_cast<int64_t>(data.size()) || end - begin != *bytes)
      return problem(path, "expected " + Twine(*bytes) + " bytes within the file for tensor " + key.str());
    auto type = RankedTensorType::get(shape, element);
    file.entries[key.str()] = {type, ArrayRef<char>(data.data() + begin, end - begin)};
  }
  return file;
}

SafeTensor SafeTensorsFile::find(StringRef name) const {
  auto found = entries.find(name.str());
  return found == entries.end() ? SafeTensor() : found->second;
}

llvm::Error mpt::writeSafeTensors(StringRef path, const std::map<std::string, SafeTensor> &tensors,
                                  const std::map<std::string, std::string> &metadata) {
  std::string header;
  llvm::raw_string_ostream text(header);
  llvm::json::OStream json(text);
  json.objectBegin();
  if (!metadata.empty())
    json.attributeObject("__metadata__", [&] {
      for (const auto &[key, value] : metadata)
        json.attribute(key, value);
    });
  int64_t offset = 0;
  for (const auto &[name, tensor] : tensors) {
    StringRef dtype = safeTensorsName(tensor.type.getElementType());
    if (dtype.empty())
      return problem(path, "no safetensors type for tensor " + name);
    int64_t bytes = tensor.bytes.size();
    json.attributeObject(name, [&, type = tensor.type] {
      json.attribute("dtype", dtype);
      json.attribute("shape", llvm::json::Array(type.getShape()));
      json.attribute("data_offsets", llvm::json::Array{offset, offset + bytes});
    });
    offset += bytes;
  }
  json.objectEnd();
  header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');
  return writeFile(path, [&](raw_ostream &out) {
    uint64_t length = header.size();
    out.write(reinterpret_cast<const char *>(&length), 8);
    out << header;
    for (const auto &[name, tensor] : tensors)
      out.write(tensor.bytes.data(), tensor.bytes.size());
  });
}
