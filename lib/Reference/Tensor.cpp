// Storage, conversion and import of interpreter tensors.
#include "mpt/Reference/Tensor.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;
using namespace mpt;

Tensor::Tensor(RankedTensorType type) : type(type), storage(std::make_shared<Storage>()) {
  if (isFloat())
    storage->reals.assign(size(), 0.0);
  else
    storage->ints.assign(size(), 0);
}

Tensor::Storage &Tensor::detach() {
  if (storage.use_count() > 1)
    storage = std::make_shared<Storage>(*storage);
  return *storage;
}

int64_t mpt::wrapInteger(int64_t value, Type type) {
  auto integer = cast<IntegerType>(type);
  unsigned unused = 64 - integer.getWidth();
  if (unused == 0)
    return value;
  uint64_t shifted = static_cast<uint64_t>(value) << unused;
  if (integer.isUnsigned() || integer.getWidth() == 1)
    return static_cast<int64_t>(shifted >> unused);
  return static_cast<int64_t>(shifted) >> unused;
}

SmallVector<int64_t> mpt::rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

FailureOr<Tensor> Tensor::fromAttribute(ElementsAttr value, Location loc) {
  auto type = cast<RankedTensorType>(value.getShapedType());
  if (auto blob = dyn_cast<DenseResourceElementsAttr>(value)) {
    const AsmResourceBlob *data = blob.getRawHandle().getBlob();
    if (!data)
      return emitError(loc) << "expected the data of resource " << blob.getRawHandle().getKey() << ", found none";
    if (static_cast<int64_t>(data->getData().size()) != byteSize(type))
      return emitError(loc) << "expected " << byteSize(type) << " bytes in resource " << blob.getRawHandle().getKey()
                            << ", got " << data->getData().size();
    return fromBytes(type, data->getData());
  }
  auto dense = dyn_cast<DenseElementsAttr>(value);
  if (!dense)
    return emitError(loc) << "expected a dense or resource attribute, got " << value;
  Tensor result(type);
  if (auto real = dyn_cast<FloatType>(type.getElementType())) {
    FloatFormat format(real);
    MutableArrayRef<double> out = result.writeReals();
    int64_t i = 0;
    for (const APFloat &element : dense.getValues<APFloat>())
      out[i++] = format.decode(element.bitcastToAPInt().getZExtValue());
    return result;
  }
  MutableArrayRef<int64_t> out = result.writeInts();
  int64_t i = 0;
  for (const APInt &element : dense.getValues<APInt>())
    out[i++] = wrapInteger(static_cast<int64_t>(element.getZExtValue()), type.getElementType());
  return result;
}

static int64_t elementBytes(Type type) { return (type.getIntOrFloatBitWidth() + 7) / 8; }

int64_t Tensor::byteSize(RankedTensorType type) { return type.getNumElements() * elementBytes(type.getElementType()); }

Tensor Tensor::fromBytes(RankedTensorType type, ArrayRef<char> bytes) {
  Tensor result(type);
  int64_t width = elementBytes(type.getElementType());
  auto load = [&](int64_t i) {
    uint64_t bits = 0;
    memcpy(&bits, bytes.data() + i * width, width);
    return bits;
  };
  if (auto real = dyn_cast<FloatType>(type.getElementType())) {
    FloatFormat format(real);
    for (auto [i, out] : llvm::enumerate(result.writeReals()))
      out = format.decode(load(i));
  } else {
    for (auto [i, out] : llvm::enumerate(result.writeInts()))
      out = wrapInteger(static_cast<int64_t>(load(i)), type.getElementType());
  }
  return result;
}

std::vector<char> Tensor::toBytes() const {
  std::vector<char> bytes(byteSize(type));
  int64_t width = elementBytes(type.getElementType());
  for (int64_t i = 0; i < size(); ++i) {
    uint64_t encoding = bits(i);
    memcpy(bytes.data() + i * width, &encoding, width);
  }
  return bytes;
}

uint64_t Tensor::bits(int64_t i) const {
  if (auto real = dyn_cast<FloatType>(type.getElementType())) {
    FloatFormat format(real);
    double x = storage->reals[i];
    // Oracle values may lie between the type's; NaN keeps its payload.
    return format.encode(std::isnan(x) ? x : format.round(x));
  }
  unsigned width = type.getElementType().getIntOrFloatBitWidth();
  auto value = static_cast<uint64_t>(storage->ints[i]);
  return width == 64 ? value : value & ((UINT64_C(1) << width) - 1);
}

void Tensor::setNumber(int64_t i, double value) {
  if (isFloat())
    detach().reals[i] = value;
  else
    detach().ints[i] = static_cast<int64_t>(value);
}

Tensor Tensor::as(RankedTensorType other, bool rounds) const {
  Tensor result = *this;
  result.retype(other);
  if (rounds)
    result.normalize();
  return result;
}

void Tensor::retype(RankedTensorType other) {
  assert(other.getNumElements() == size() && isa<FloatType>(other.getElementType()) == isFloat());
  type = other;
}

/// Applies `fn` to every element, detaching the storage only when one changes.
template <typename Element, typename Write, typename Fn>
static void replaceChanged(ArrayRef<Element> in, Write write, Fn fn) {
  size_t first = 0;
  while (first < in.size() && (fn(in[first]) == in[first] || in[first] != in[first]))
    ++first;
  if (first == in.size())
    return;
  auto out = write();
  for (Element &x : out.drop_front(first))
    x = fn(x);
}

void Tensor::normalize() {
  Type element = type.getElementType();
  if (auto real = dyn_cast<FloatType>(element)) {
    FloatFormat format(real);
    replaceChanged(reals(), [&] { return writeReals(); }, [&](double x) { return format.round(x); });
  } else {
    replaceChanged(ints(), [&] { return writeInts(); }, [&](int64_t x) { return wrapInteger(x, element); });
  }
}
