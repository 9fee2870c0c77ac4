// SPDX-License-Identifier: Apache-2.0
// Storage, conversion and import of interpreter tensors.
#include "mpt/Evaluation/Tensor.h"

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

namespace {

/// Wraps integers to the width of a type.
class Wrap {
public:
  explicit Wrap(Type type) {
    auto integer = cast<IntegerType>(type);
    unused = 64 - integer.getWidth();
    zeroExtends = integer.isUnsigned() || integer.getWidth() == 1;
  }
  int64_t operator()(int64_t value) const {
    uint64_t shifted = static_cast<uint64_t>(value) << unused;
    return zeroExtends ? static_cast<int64_t>(shifted >> unused) : static_cast<int64_t>(shifted) >> unused;
  }

private:
  unsigned unused;
  bool zeroExtends;
};

} // namespace

int64_t mpt::wrapInteger(int64_t value, Type type) { return Wrap(type)(value); }

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
  // Raw data has the layout of fromBytes; data of one value, or narrower than a byte, is read as numbers.
  if (!dense.isSplat() && type.getElementTypeBitWidth() >= 8)
    return fromBytes(type, dense.getRawData());
  Tensor result(type);
  if (auto real = dyn_cast<FloatType>(type.getElementType())) {
    FloatFormat format(real);
    auto decode = [&](const APFloat &element) { return format.decode(element.bitcastToAPInt().getZExtValue()); };
    std::fill_n(result.writeReals().begin(), result.size(), decode(dense.getSplatValue<APFloat>()));
    return result;
  }
  Wrap wrap(type.getElementType());
  auto decode = [&](const APInt &element) { return wrap(static_cast<int64_t>(element.getZExtValue())); };
  MutableArrayRef<int64_t> out = result.writeInts();
  if (dense.isSplat())
    std::fill(out.begin(), out.end(), decode(dense.getSplatValue<APInt>()));
  else
    llvm::transform(dense.getValues<APInt>(), out.begin(), decode);
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
    Wrap wrap(type.getElementType());
    for (auto [i, out] : llvm::enumerate(result.writeInts()))
      out = wrap(static_cast<int64_t>(load(i)));
  }
  return result;
}

/// Oracle values may lie between the type's; NaN keeps its payload.
static uint64_t encode(const FloatFormat &format, double x) {
  return format.encode(std::isnan(x) ? x : format.round(x));
}

static uint64_t encode(Type integer, int64_t x) {
  return static_cast<uint64_t>(x) & (UINT64_MAX >> (64 - integer.getIntOrFloatBitWidth()));
}

std::vector<char> Tensor::toBytes() const {
  std::vector<char> bytes(byteSize(type));
  int64_t width = elementBytes(getElementType());
  auto store = [&](auto format, auto elements) {
    for (auto [i, x] : llvm::enumerate(elements)) {
      uint64_t encoding = encode(format, x);
      memcpy(bytes.data() + i * width, &encoding, width);
    }
  };
  if (auto real = dyn_cast<FloatType>(getElementType()))
    store(FloatFormat(real), reals());
  else
    store(getElementType(), ints());
  return bytes;
}

DenseElementsAttr Tensor::toAttribute() const {
  if (size() == 0)
    return isFloat() ? DenseElementsAttr::get(type, ArrayRef<APFloat>())
                     : DenseElementsAttr::get(type, ArrayRef<APInt>());
  std::vector<char> bytes = toBytes();
  size_t width = elementBytes(getElementType());
  // Equal to itself, one element on.
  bool isUniform = std::equal(bytes.begin() + width, bytes.end(), bytes.begin());
  if (isUniform)
    bytes.resize(width);
  if (getElementType().isInteger(1)) // packed in attributes, a byte each here
    return DenseElementsAttr::get(type, SmallVector<bool>(bytes.begin(), bytes.end()));
  return DenseElementsAttr::getFromRawBuffer(type, bytes);
}

uint64_t Tensor::bits(int64_t i) const {
  if (auto real = dyn_cast<FloatType>(getElementType()))
    return encode(FloatFormat(real), reals()[i]);
  return encode(getElementType(), ints()[i]);
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
  if (auto real = dyn_cast<FloatType>(element))
    withRounding(real, [&](auto round) { replaceChanged(reals(), [&] { return writeReals(); }, round); });
  else
    replaceChanged(ints(), [&] { return writeInts(); }, Wrap(element));
}
