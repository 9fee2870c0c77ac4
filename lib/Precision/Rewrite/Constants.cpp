// SPDX-License-Identifier: Apache-2.0
// Element-wise conversion of constants with range accounting.
#include "mpt/Precision/Constants.h"

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Support/MappedFiles.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstring>

using namespace mlir;
using namespace mpt;
using llvm::APFloat;

namespace {
struct RangeCount {
  int64_t above = 0, below = 0;
};
} // namespace

static APFloat narrow(APFloat value, const llvm::fltSemantics &semantics, RangeCount &count) {
  bool wasFinite = value.isFinite(), wasZero = value.isZero(), negative = value.isNegative(), loses;
  value.convert(semantics, APFloat::rmNearestTiesToEven, &loses);
  if (wasFinite && !value.isFinite()) {
    ++count.above;
    return APFloat::getLargest(semantics, negative);
  }
  if (!wasZero && value.isZero()) {
    ++count.below;
    return APFloat::getSmallest(semantics, negative);
  }
  return value;
}

static std::string describe(RangeCount count, FloatType type) {
  std::string note;
  llvm::raw_string_ostream out(note);
  if (count.above)
    out << count.above << " beyond " << type << "'s range, now its largest finite value";
  if (count.below)
    out << (count.above ? "; " : "") << count.below << " below " << type << "'s range, now its smallest subnormal";
  return note;
}

NarrowedConstant mpt::narrowConstant(ElementsAttr value, FloatType type) {
  const llvm::fltSemantics &semantics = type.getFloatSemantics();
  ShapedType shape = value.getShapedType().clone(Type(type));
  RangeCount count;
  if (value.isSplat() && isa<DenseElementsAttr>(value)) {
    APFloat one = narrow(cast<DenseElementsAttr>(value).getSplatValue<APFloat>(), semantics, count);
    return {DenseElementsAttr::get(shape, one), describe(count, type)};
  }
  SmallVector<APFloat> narrowed;
  narrowed.reserve(value.getNumElements());
  if (auto dense = dyn_cast<DenseElementsAttr>(value)) {
    for (const APFloat &element : dense.getValues<APFloat>())
      narrowed.push_back(narrow(element, semantics, count));
  } else if (auto blob = dyn_cast<DenseF32ResourceElementsAttr>(value)) {
    auto contents = blob.tryGetAsArrayRef();
    if (!contents)
      return {};
    for (float element : *contents)
      narrowed.push_back(narrow(APFloat(element), semantics, count));
  } else {
    return {};
  }
  return {DenseElementsAttr::get(shape, narrowed), describe(count, type)};
}

std::optional<Magnitudes> mpt::magnitudesOf(Attribute constant, const MappedFiles *files) {
  uint32_t largest = 0, smallest = 0x7f800000;
  auto add = [&](ArrayRef<char> data) {
    constexpr size_t chunk = size_t(1) << 22;
    for (size_t start = 0; start + 4 <= data.size(); start += chunk) {
      ArrayRef<char> bytes = data.slice(start, std::min(chunk, data.size() - start));
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        uint32_t bits;
        memcpy(&bits, bytes.data() + i, 4);
        bits &= 0x7fffffff;
        uint32_t finite = bits < 0x7f800000 ? bits : 0;
        largest = std::max(largest, finite);
        smallest = std::min(smallest, finite ? finite : 0x7f800000);
      }
      if (files)
        files->release(bytes.data(), bytes.size());
    }
  };
  if (auto scalar = dyn_cast_or_null<FloatAttr>(constant)) {
    float value = static_cast<float>(scalar.getValueAsDouble());
    add({reinterpret_cast<const char *>(&value), 4});
  } else if (auto dense = dyn_cast_or_null<DenseElementsAttr>(constant); dense && dense.getElementType().isF32()) {
    add(dense.getRawData());
  } else if (auto resource = dyn_cast_or_null<DenseResourceElementsAttr>(constant);
             resource && resource.getElementType().isF32() && resource.getRawHandle().getBlob()) {
    add(resource.getRawHandle().getBlob()->getData());
  } else {
    return std::nullopt;
  }
  Magnitudes found;
  memcpy(&found.largest, &largest, 4);
  if (largest)
    memcpy(&found.smallest, &smallest, 4);
  return found;
}

llvm::DenseMap<StringAttr, float> mpt::statesBeyond(ModuleOp module, FloatType type) {
  llvm::DenseMap<StringAttr, float> found;
  if (type.getWidth() >= 32)
    return found;
  MappedFiles files;
  for (auto state : module.getOps<train::StateOp>()) {
    if (state.getRole() != train::Role::parameter && state.getRole() != train::Role::constant)
      continue;
    std::optional<Magnitudes> magnitudes = magnitudesOf(state.getValueAttr(), &files);
    if (!magnitudes)
      continue;
    APFloat largest(magnitudes->largest);
    bool loses;
    largest.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    if (!largest.isFinite())
      found[state.getSymNameAttr()] = magnitudes->largest;
  }
  return found;
}
