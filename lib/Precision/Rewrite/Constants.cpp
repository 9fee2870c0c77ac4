// SPDX-License-Identifier: Apache-2.0
// Element-wise conversion of constants with range accounting.
#include "mpt/Precision/Constants.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/Support/raw_ostream.h"

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
