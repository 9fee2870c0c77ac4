// SPDX-License-Identifier: Apache-2.0
// TensorProto to elements attributes: typed fields, raw bytes, and files beside the model.
#include "Proto.h"

#include "../StorageTypes.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;
using ::onnx::TensorProto;

namespace {
/// From this size on, content is a blob by reference instead of a uniqued attribute.
constexpr int64_t blobBytes = 4096;

struct External {
  std::string path;
  uint64_t offset = 0, length = 0;
  bool hasLength = false;
};
} // namespace

Type proto::elementType(MLIRContext *context, int32_t dataType) {
  auto integer = [&](unsigned width, IntegerType::SignednessSemantics sign = IntegerType::Signless) -> Type {
    return IntegerType::get(context, width, sign);
  };
  switch (dataType) {
  case TensorProto::FLOAT:
    return Float32Type::get(context);
  case TensorProto::DOUBLE:
    return Float64Type::get(context);
  case TensorProto::FLOAT16:
    return Float16Type::get(context);
  case TensorProto::BFLOAT16:
    return BFloat16Type::get(context);
  case TensorProto::FLOAT8E4M3FN:
    return Float8E4M3FNType::get(context);
  case TensorProto::FLOAT8E5M2:
    return Float8E5M2Type::get(context);
  case TensorProto::INT8:
    return integer(8);
  case TensorProto::INT16:
    return integer(16);
  case TensorProto::INT32:
    return integer(32);
  case TensorProto::INT64:
    return integer(64);
  case TensorProto::UINT8:
    return integer(8, IntegerType::Unsigned);
  case TensorProto::UINT16:
    return integer(16, IntegerType::Unsigned);
  case TensorProto::UINT32:
    return integer(32, IntegerType::Unsigned);
  case TensorProto::UINT64:
    return integer(64, IntegerType::Unsigned);
  case TensorProto::BOOL:
    return integer(1);
  default:
    return {};
  }
}

/// Bytes of one element in memory.
static int64_t byteWidth(Type type) { return llvm::divideCeil(type.getIntOrFloatBitWidth(), 8); }

/// Bits of one element in a file.
static int64_t bitsOf(int32_t dataType, Type type) {
  switch (dataType) {
  case TensorProto::INT4:
  case TensorProto::UINT4:
  case TensorProto::FLOAT4E2M1:
    return 4;
  case TensorProto::INT2:
  case TensorProto::UINT2:
    return 2;
  default:
    return 8 * byteWidth(type);
  }
}

/// Bytes of all elements in a file: elements of fewer than 8 bits share bytes.
static int64_t bytesInFile(const TensorProto &tensor, RankedTensorType type) {
  return (type.getNumElements() * bitsOf(tensor.data_type(), type.getElementType()) + 7) / 8;
}

static bool isPacked(const TensorProto &tensor, RankedTensorType type) {
  return bitsOf(tensor.data_type(), type.getElementType()) < 8;
}

/// Elements of fewer than 8 bits, the first in the lowest bits, each in a byte of its own.
static std::string unpack(ArrayRef<char> packed, const TensorProto &tensor, RankedTensorType type) {
  int64_t bits = bitsOf(tensor.data_type(), type.getElementType()), each = 8 / bits, count = type.getNumElements();
  bool isSigned = type.getElementType().isSignlessInteger();
  std::string bytes(count, '\0');
  for (int64_t i = 0; i < count; ++i) {
    auto value = static_cast<uint8_t>(packed[i / each]) >> (i % each * bits) & ((1 << bits) - 1);
    bool isNegative = isSigned && value >> (bits - 1);
    bytes[i] = static_cast<char>(isNegative ? value - (1 << bits) : value);
  }
  return bytes;
}

static FailureOr<RankedTensorType> tensorTypeOf(const TensorProto &tensor, Location loc) {
  Type element = proto::elementType(loc.getContext(), tensor.data_type());
  if (!element && isStorageType(tensor.data_type())) {
    bool isSigned = tensor.data_type() == TensorProto::INT4 || tensor.data_type() == TensorProto::INT2;
    element = IntegerType::get(loc.getContext(), 8, isSigned ? IntegerType::Signless : IntegerType::Unsigned);
  }
  if (!element)
    return emitError(loc) << "expected a tensor of float or integer elements, got ONNX data type " << tensor.data_type()
                          << "; strings and complex numbers are not supported";
  SmallVector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  int64_t count = 1;
  for (int64_t extent : shape)
    if (extent < 0 || llvm::MulOverflow(count, std::max<int64_t>(extent, 1), count) || count > mostElements)
      return emitError(loc) << "expected extents that are not negative and fewer than 2^40 elements, got [" << shape
                            << "]";
  return RankedTensorType::get(shape, element);
}

static FailureOr<External> externalOf(const TensorProto &tensor, StringRef folder, Location loc) {
  External result;
  StringRef location;
  for (const auto &entry : tensor.external_data()) {
    StringRef key = entry.key(), value = entry.value();
    uint64_t *number = key == "offset" ? &result.offset : key == "length" ? &result.length : nullptr;
    if (number && value.getAsInteger(10, *number))
      return emitError(loc) << "expected a decimal number as external data's " << key << ", got '" << value << "'";
    result.hasLength |= key == "length";
    if (key == "location")
      location = value;
  }
  if (folder.empty())
    return emitError(loc) << "expected a model in a file, as its data lie in '" << location << "' beside it";
  bool climbs = llvm::any_of(llvm::make_range(llvm::sys::path::begin(location), llvm::sys::path::end(location)),
                             [](StringRef part) { return part == ".."; });
  if (location.empty() || location.contains('\0') || llvm::sys::path::is_absolute(location) || climbs)
    return emitError(loc) << "expected external data in the model's folder, got location '" << location
                          << "'; move the file beside the model [mpt-missing-data]";
  SmallString<256> path(folder), real, root;
  llvm::sys::path::append(path, location);
  if (std::error_code error = llvm::sys::fs::real_path(path, real))
    return emitError(loc) << "cannot open external data '" << path << "': " << error.message()
                          << "; copy it beside the model [mpt-missing-data]";
  if (llvm::sys::fs::real_path(folder, root))
    return emitError(loc) << "cannot resolve the model's folder '" << folder << "'";
  if (!root.ends_with("/"))
    root += '/';
  if (!real.str().starts_with(root) || !llvm::sys::fs::is_regular_file(real))
    return emitError(loc) << "expected external data to be a regular file in the model's folder, got '" << path
                          << "', which leads to '" << real << "'";
  result.path = std::string(real);
  return result;
}

/// A blob whose pages come from the file when they are read.
static FailureOr<ElementsAttr> mapFile(const External &external, uint64_t bytes, RankedTensorType type, StringRef name,
                                       Location loc) {
  using llvm::sys::fs::mapped_file_region;
  auto file = llvm::sys::fs::openNativeFileForRead(external.path);
  if (!file)
    return emitError(loc) << "cannot open external data '" << external.path
                          << "': " << llvm::toString(file.takeError());
  std::error_code error;
  uint64_t start = llvm::alignDown(external.offset, mapped_file_region::alignment()), skipped = external.offset - start;
  auto region =
      std::make_unique<mapped_file_region>(*file, mapped_file_region::readonly, bytes + skipped, start, error);
  llvm::sys::fs::closeFile(*file);
  if (error)
    return emitError(loc) << "cannot map external data '" << external.path << "': " << error.message();
  ArrayRef<char> data(region->const_data() + skipped, bytes);
  AsmResourceBlob blob(data, 1, [keep = std::move(region)](void *, size_t, size_t) {}, /*dataIsMutable=*/false);
  return ElementsAttr(DenseResourceElementsAttr::get(type, name, std::move(blob)));
}

/// Elements in raw form as an attribute: a uniqued one where they are few.
static ElementsAttr held(std::string bytes, RankedTensorType type, StringRef name) {
  auto want = static_cast<int64_t>(bytes.size()), width = byteWidth(type.getElementType());
  if (want < blobBytes) {
    ArrayRef<char> data(bytes.data(), bytes.size());
    bool splat = want > width && std::equal(bytes.begin() + width, bytes.end(), bytes.begin());
    return DenseElementsAttr::getFromRawBuffer(type, splat ? data.take_front(width) : data);
  }
  auto keep = std::make_unique<std::string>(std::move(bytes));
  ArrayRef<char> data(keep->data(), keep->size());
  AsmResourceBlob blob(data, 8, [keep = std::move(keep)](void *, size_t, size_t) {}, /*dataIsMutable=*/false);
  return DenseResourceElementsAttr::get(type, name, std::move(blob));
}

static FailureOr<ElementsAttr> mapExternal(const TensorProto &tensor, RankedTensorType type, StringRef folder,
                                           Location loc) {
  FailureOr<External> external = externalOf(tensor, folder, loc);
  if (failed(external))
    return failure();
  uint64_t want = bytesInFile(tensor, type);
  uint64_t size = 0;
  if (llvm::sys::fs::file_size(external->path, size))
    return emitError(loc) << "cannot read external data '" << external->path << "'";
  if (external->hasLength && external->length != want)
    return emitError(loc) << "expected " << want << " bytes of external data for " << type << ", got length "
                          << external->length;
  if (external->offset > size || size - external->offset < want)
    return emitError(loc) << "expected " << want << " bytes at offset " << external->offset << " of '" << external->path
                          << "', which has " << size << " bytes; the file may be truncated [mpt-missing-data]";
  bool isFlags = type.getElementType().isInteger(1);
  if (!isFlags && !isPacked(tensor, type) && want >= proto::mappedBytes)
    return mapFile(*external, want, type, tensor.name(), loc);
  auto buffer = llvm::MemoryBuffer::getFileSlice(external->path, want, external->offset);
  if (!buffer)
    return emitError(loc) << "cannot read external data '" << external->path << "': " << buffer.getError().message();
  ArrayRef<char> data((*buffer)->getBufferStart(), want);
  if (isFlags || type.getNumElements() == 0) {
    SmallVector<bool> bits(llvm::map_range(data, [](char c) { return c != 0; }));
    return ElementsAttr(isFlags ? DenseElementsAttr::get(type, ArrayRef<bool>(bits))
                                : DenseElementsAttr::getFromRawBuffer(type, {}));
  }
  if (isPacked(tensor, type))
    return held(unpack(data, tensor, type), type, tensor.name());
  AsmResourceBlob blob(data, 1, [keep = std::move(*buffer)](void *, size_t, size_t) {}, /*dataIsMutable=*/false);
  return ElementsAttr(DenseResourceElementsAttr::get(type, tensor.name(), std::move(blob)));
}

/// Calls `use` with the typed field that holds the elements of `tensor`.
template <typename Use> static void withTypedField(const TensorProto &tensor, Use use) {
  switch (tensor.data_type()) {
  case TensorProto::FLOAT:
    return use(tensor.float_data());
  case TensorProto::DOUBLE:
    return use(tensor.double_data());
  case TensorProto::INT64:
    return use(tensor.int64_data());
  case TensorProto::UINT32:
  case TensorProto::UINT64:
    return use(tensor.uint64_data());
  default:
    return use(tensor.int32_data());
  }
}

std::string proto::rawBytes(const TensorProto &tensor, MLIRContext *context) {
  if (tensor.has_raw_data())
    return tensor.raw_data();
  Type element = elementType(context, tensor.data_type());
  int64_t width = element ? byteWidth(element) : 1;
  std::string bytes;
  withTypedField(tensor, [&](const auto &field) {
    bytes.reserve(field.size() * width);
    for (auto value : field)
      bytes.append(reinterpret_cast<const char *>(&value), width);
  });
  return bytes;
}

/// Fails unless the message holds as many data as `type` has.
static LogicalResult checkData(const TensorProto &tensor, RankedTensorType type, Location loc) {
  if (tensor.data_location() == TensorProto::EXTERNAL)
    return success();
  // Typed fields have an entry for each element, or for each byte of packed ones.
  int64_t want = bytesInFile(tensor, type), have = 0;
  int64_t count = isPacked(tensor, type) ? want : type.getNumElements();
  if (tensor.has_raw_data()) {
    have = tensor.raw_data().size();
    if (have != want)
      return emitError(loc) << "expected " << want << " bytes for " << type << ", got " << have
                            << "; the file may be truncated";
    return success();
  }
  withTypedField(tensor, [&](const auto &field) { have = field.size(); });
  if (have != count)
    return emitError(loc) << "expected " << count << " values for " << type << ", got " << have
                          << "; the file may be truncated";
  return success();
}

LogicalResult proto::checkTensor(const TensorProto &tensor, Location loc) {
  FailureOr<RankedTensorType> type = tensorTypeOf(tensor, loc);
  return failed(type) ? failure() : checkData(tensor, *type, loc);
}

FailureOr<ElementsAttr> proto::zerosAttr(const TensorProto &tensor, Location loc) {
  FailureOr<RankedTensorType> type = tensorTypeOf(tensor, loc);
  if (failed(type))
    return failure();
  return ElementsAttr(cast<DenseElementsAttr>(Builder(loc.getContext()).getZeroAttr(*type)));
}

FailureOr<ElementsAttr> proto::tensorAttr(TensorProto &tensor, StringRef folder, Location loc) {
  FailureOr<RankedTensorType> type = tensorTypeOf(tensor, loc);
  if (failed(type))
    return failure();
  if (tensor.data_location() == TensorProto::EXTERNAL)
    return mapExternal(tensor, *type, folder, loc);
  if (failed(checkData(tensor, *type, loc)))
    return failure();
  std::string bytes =
      tensor.has_raw_data() ? std::move(*tensor.mutable_raw_data()) : proto::rawBytes(tensor, loc.getContext());
  if (type->getElementType().isInteger(1)) {
    SmallVector<bool> bits(llvm::map_range(bytes, [](char c) { return c != 0; }));
    return ElementsAttr(DenseElementsAttr::get(*type, ArrayRef<bool>(bits)));
  }
  if (isPacked(tensor, *type))
    bytes = unpack(bytes, tensor, *type);
  return held(std::move(bytes), *type, tensor.name());
}

FailureOr<int64_t> proto::byteSize(const TensorProto &tensor, Location loc) {
  FailureOr<RankedTensorType> type = tensorTypeOf(tensor, loc);
  if (failed(type))
    return failure();
  if (isStorageType(tensor.data_type()))
    return emitError(loc) << "expected a type that has arithmetic, got ONNX data type " << tensor.data_type();
  return bytesInFile(tensor, *type);
}
