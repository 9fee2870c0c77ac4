// SPDX-License-Identifier: Apache-2.0
// Constant attributes to numbers and back.
#include "Host.h"

#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace mpt;

template <typename T> static std::vector<T> unpack(ArrayRef<char> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

static double toDouble(APFloat value) {
  bool lossy;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &lossy);
  return value.convertToDouble();
}

/// Blobs: raw little-endian bytes of the file.
static bool readBlob(HostTensor &tensor, ArrayRef<char> bytes) {
  Type element = tensor.type.getElementType();
  auto take = [&](auto zero, auto &target) {
    for (auto value : unpack<decltype(zero)>(bytes))
      target.push_back(value);
    return static_cast<int64_t>(target.size()) == tensor.type.getNumElements();
  };
  if (auto type = dyn_cast<FloatType>(element)) {
    if (type.isF32())
      return take(float(), tensor.floats);
    if (type.isF64())
      return take(double(), tensor.floats);
    auto widen = [&](auto zero) {
      for (auto bits : unpack<decltype(zero)>(bytes))
        tensor.floats.push_back(toDouble(APFloat(type.getFloatSemantics(), APInt(type.getWidth(), bits))));
      return static_cast<int64_t>(tensor.floats.size()) == tensor.type.getNumElements();
    };
    return type.getWidth() == 16 ? widen(uint16_t()) : widen(uint8_t());
  }
  bool isUnsigned = element.isUnsignedInteger();
  switch (element.getIntOrFloatBitWidth()) {
  case 8:
    return isUnsigned ? take(uint8_t(), tensor.ints) : take(int8_t(), tensor.ints);
  case 16:
    return isUnsigned ? take(uint16_t(), tensor.ints) : take(int16_t(), tensor.ints);
  case 32:
    return isUnsigned ? take(uint32_t(), tensor.ints) : take(int32_t(), tensor.ints);
  case 64:
    return take(int64_t(), tensor.ints);
  default:
    return false;
  }
}

std::optional<HostTensor> mpt::readHost(ElementsAttr attr) {
  HostTensor tensor(cast<RankedTensorType>(attr.getType()));
  if (auto blob = dyn_cast<DenseResourceElementsAttr>(attr)) {
    if (!readBlob(tensor, blob.getData()))
      return std::nullopt;
    return tensor;
  }
  auto dense = dyn_cast<DenseElementsAttr>(attr);
  if (!dense)
    return std::nullopt;
  tensor.splat = dense.isSplat();
  Type element = tensor.type.getElementType();
  auto integer = [&](const APInt &value) {
    bool isUnsigned = element.isUnsignedInteger() || element.isInteger(1);
    return isUnsigned ? static_cast<int64_t>(value.getZExtValue()) : value.getSExtValue();
  };
  if (tensor.isFloat()) {
    if (tensor.splat) {
      tensor.floats.push_back(toDouble(dense.getSplatValue<APFloat>()));
      return tensor;
    }
    for (APFloat value : dense.getValues<APFloat>())
      tensor.floats.push_back(toDouble(value));
  } else if (tensor.splat) {
    tensor.ints.push_back(integer(dense.getSplatValue<APInt>()));
  } else {
    for (const APInt &value : dense.getValues<APInt>())
      tensor.ints.push_back(integer(value));
  }
  return tensor;
}

DenseElementsAttr mpt::writeHost(const HostTensor &tensor) {
  Type element = tensor.type.getElementType();
  int64_t count = tensor.count();
  if (auto type = dyn_cast<FloatType>(element)) {
    bool same = count > 1;
    for (int64_t i = 1; i < count && same; ++i)
      same = memcmp(&tensor.floats[i], &tensor.floats[0], sizeof(double)) == 0;
    SmallVector<APFloat> values;
    for (int64_t i = 0, e = same ? 1 : count; i < e; ++i) {
      APFloat value(tensor.floats[i]);
      bool lossy;
      value.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &lossy);
      values.push_back(value);
    }
    return DenseElementsAttr::get(tensor.type, values);
  }
  bool same = count > 1 && llvm::all_equal(tensor.ints);
  SmallVector<APInt> values;
  for (int64_t i = 0, e = same ? 1 : count; i < e; ++i)
    values.push_back(APInt(64, static_cast<uint64_t>(tensor.ints[i])).trunc(element.getIntOrFloatBitWidth()));
  return DenseElementsAttr::get(tensor.type, values);
}
