// SPDX-License-Identifier: Apache-2.0
// The one loop over elements of constants: integer arithmetic on FP32's bits, which compilers vectorize.
#include "mpt/Precision/ConstantReader.h"

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/APFloat.h"

#include <cstring>
#include <limits>

using namespace mlir;
using namespace mpt;

namespace {
constexpr size_t kPieceBytes = size_t(1) << 22;
constexpr int32_t kInfinity = 0x7f800000;

class Elements {
public:
  void add(double value) {
    if (!std::isfinite(value))
      return;
    found.low = std::min(found.low, value);
    found.high = std::max(found.high, value);
    found.integer &= value == std::trunc(value);
    squares += value * value;
    ++added;
    if (double magnitude = std::abs(value); magnitude != 0)
      smallest = std::min(smallest, magnitude);
  }

  template <typename T> void addPiece(ArrayRef<char> bytes) {
    for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T))
      add(static_cast<double>(load<T>(bytes, at)));
  }

  ElementRange take(int64_t elements) {
    if (found.low > found.high)
      found.low = found.high = 0;
    found.smallest = std::isfinite(smallest) ? smallest : 0;
    found.rootMeanSquare = added ? std::sqrt(squares / static_cast<double>(added)) : 0;
    found.elements = elements;
    return found;
  }

  Elements() {
    found.low = std::numeric_limits<double>::infinity();
    found.high = -found.low;
  }

private:
  template <typename T> static T load(ArrayRef<char> bytes, size_t at) {
    T value;
    memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
  }

  ElementRange found;
  double smallest = std::numeric_limits<double>::infinity();
  double squares = 0;
  size_t added = 0; ///< elements; a splat is added once
};

/// The sum of squares in lanes that a compiler makes a vector of, for sums of floats keep their order.
static double sumOfSquares(ArrayRef<char> bytes) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  for (size_t at = 0; at + sizeof(lanes) <= bytes.size(); at += sizeof(lanes)) {
    float values[kLanes];
    memcpy(values, bytes.data() + at, sizeof(lanes));
    for (size_t i = 0; i < kLanes; ++i)
      lanes[i] += values[i] * values[i];
  }
  double sum = 0;
  for (float lane : lanes)
    sum += lane;
  for (size_t at = bytes.size() / sizeof(lanes) * sizeof(lanes); at + 4 <= bytes.size(); at += 4) {
    float value;
    memcpy(&value, bytes.data() + at, 4);
    sum += static_cast<double>(value) * value;
  }
  return std::isfinite(sum) ? sum : 0; // sentinels have no magnitude
}

/// With the sign and the magnitude in two's complement, bits compare as the numbers do.
template <> void Elements::addPiece<float>(ArrayRef<char> bytes) {
  constexpr int32_t most = std::numeric_limits<int32_t>::max(), lowest = -most;
  int32_t low = most, high = lowest, least = kInfinity;
  for (size_t i = 0, count = bytes.size() / 4; i < count; ++i) {
    int32_t bits = load<int32_t>(bytes, i * 4), magnitude = bits & most, sign = bits >> 31;
    int32_t ordered = (magnitude ^ sign) - sign;
    bool finite = magnitude < kInfinity;
    low = std::min(low, finite ? ordered : most);
    high = std::max(high, finite ? ordered : lowest);
    least = std::min(least, magnitude ? magnitude : kInfinity);
  }
  auto number = [](int32_t ordered) {
    int32_t magnitude = std::abs(ordered);
    float value;
    memcpy(&value, &magnitude, 4);
    return static_cast<double>(ordered < 0 ? -value : value);
  };
  if (low <= high) {
    found.low = std::min(found.low, number(low));
    found.high = std::max(found.high, number(high));
  }
  if (least < kInfinity)
    smallest = std::min(smallest, number(least));
  squares += sumOfSquares(bytes);
  added += bytes.size() / 4;
  // Of weights the first few elements tell.
  for (size_t at = 0; at + 4 <= bytes.size() && found.integer; at += 4)
    if (float value = load<float>(bytes, at); std::isfinite(value))
      found.integer = value == std::trunc(value);
}
} // namespace

/// Numbers of types that large constants do not have.
static bool addValues(DenseElementsAttr dense, Elements &elements) {
  Type type = dense.getElementType();
  auto floating = [&](const APFloat &value) {
    APFloat wide = value;
    bool loses;
    wide.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
    elements.add(wide.convertToDouble());
  };
  auto whole = [&](const APInt &value) {
    elements.add(value.roundToDouble(/*isSigned=*/value.getBitWidth() > 1 && !type.isUnsignedInteger()));
  };
  if (isa<FloatType>(type) && dense.isSplat())
    floating(dense.getSplatValue<APFloat>());
  else if (isa<FloatType>(type))
    llvm::for_each(dense.getValues<APFloat>(), floating);
  else if (type.isInteger() && dense.isSplat())
    whole(dense.getSplatValue<APInt>());
  else if (type.isInteger())
    llvm::for_each(dense.getValues<APInt>(), whole);
  else
    return false;
  return true;
}

/// Elements as they lie in memory, the splat of a dense attribute as one.
static bool addBytes(ArrayRef<char> data, Type type, Elements &elements, const MappedFiles &files) {
  void (Elements::*add)(ArrayRef<char>) = type.isF32()                 ? &Elements::addPiece<float>
                                          : type.isF64()               ? &Elements::addPiece<double>
                                          : type.isSignlessInteger(64) ? &Elements::addPiece<int64_t>
                                          : type.isSignlessInteger(32) ? &Elements::addPiece<int32_t>
                                                                       : nullptr;
  if (!add)
    return false;
  for (size_t start = 0; start < data.size(); start += kPieceBytes) {
    ArrayRef<char> piece = data.slice(start, std::min(kPieceBytes, data.size() - start));
    (elements.*add)(piece);
    files.release(piece.data(), piece.size());
  }
  return true;
}

static std::optional<ElementRange> readElements(Attribute constant, const MappedFiles &files) {
  Elements elements;
  if (auto number = dyn_cast_or_null<FloatAttr>(constant)) {
    elements.add(number.getValueAsDouble());
    return elements.take(1);
  }
  if (auto number = dyn_cast_or_null<IntegerAttr>(constant)) {
    elements.add(number.getValue().getBitWidth() == 1 ? number.getValue().getZExtValue() : number.getInt());
    return elements.take(1);
  }
  if (auto list = dyn_cast_or_null<DenseI64ArrayAttr>(constant)) {
    llvm::for_each(list.asArrayRef(), [&](int64_t value) { elements.add(static_cast<double>(value)); });
    return elements.take(list.size());
  }
  if (auto list = dyn_cast_or_null<DenseF32ArrayAttr>(constant)) {
    llvm::for_each(list.asArrayRef(), [&](float value) { elements.add(value); });
    return elements.take(list.size());
  }
  bool isRead = false;
  if (auto dense = dyn_cast_or_null<DenseElementsAttr>(constant)) {
    isRead = (isa<DenseIntOrFPElementsAttr>(dense) &&
              addBytes(dense.getRawData(), dense.getElementType(), elements, files)) ||
             addValues(dense, elements);
  } else if (auto resource = dyn_cast_or_null<DenseResourceElementsAttr>(constant)) {
    AsmResourceBlob *blob = resource.getRawHandle().getBlob();
    isRead = blob && addBytes(blob->getData(), resource.getElementType(), elements, files);
  }
  return isRead ? std::optional(elements.take(cast<ElementsAttr>(constant).getNumElements())) : std::nullopt;
}

std::optional<ElementRange> ConstantReader::read(Attribute constant) {
  if (!constant)
    return std::nullopt;
  auto [found, isNew] = known.try_emplace(constant);
  if (isNew)
    found->second = readElements(constant, files);
  return found->second;
}

llvm::DenseMap<StringAttr, double> mpt::statesBeyond(ModuleOp module, FloatType type, ConstantReader &reader) {
  llvm::DenseMap<StringAttr, double> found;
  if (type.getWidth() >= 32)
    return found;
  for (auto state : module.getOps<train::StateOp>()) {
    if (state.getRole() != train::Role::parameter && state.getRole() != train::Role::constant)
      continue;
    std::optional<ElementRange> range = reader.read(state.getValueAttr());
    if (!range || !getElementTypeOrSelf(state.getType()).isF32())
      continue;
    APFloat largest(range->magnitude());
    bool loses;
    largest.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    if (!largest.isFinite())
      found[state.getSymNameAttr()] = range->magnitude();
  }
  return found;
}
