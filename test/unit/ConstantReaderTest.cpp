// SPDX-License-Identifier: Apache-2.0
// Ranges of constants against a loop over the same numbers: values of every kind, in tensors smaller and larger than
// the pieces they are read in.
#include "mpt/Precision/ConstantReader.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdio>
#include <limits>
#include <random>
#include <vector>

using namespace mlir;
using namespace mpt;

namespace {
int failures = 0;

void expect(bool holds, const char *what, size_t count) {
  if (holds)
    return;
  std::fprintf(stderr, "%s of %zu elements is wrong\n", what, count);
  ++failures;
}

template <typename T> ElementRange slow(const std::vector<T> &values) {
  ElementRange range;
  bool any = false;
  for (T element : values) {
    double value = static_cast<double>(element);
    if (!std::isfinite(value))
      continue;
    range.low = any ? std::min(range.low, value) : value;
    range.high = any ? std::max(range.high, value) : value;
    range.integer &= value == std::trunc(value);
    if (value != 0 && (range.smallest == 0 || std::abs(value) < range.smallest))
      range.smallest = std::abs(value);
    any = true;
  }
  range.elements = static_cast<int64_t>(values.size());
  return range;
}

void compare(const std::optional<ElementRange> &got, const ElementRange &want, const char *how) {
  size_t count = static_cast<size_t>(want.elements);
  expect(got.has_value(), how, count);
  if (!got)
    return;
  expect(got->low == want.low && got->high == want.high, "the range", count);
  expect(got->smallest == want.smallest, "the least magnitude", count);
  expect(got->integer == want.integer, "whether whole numbers", count);
  expect(got->elements == want.elements, "the number", count);
}

template <typename T> void check(const std::vector<T> &values, Type type) {
  auto shape = RankedTensorType::get({static_cast<int64_t>(values.size())}, type);
  ConstantReader reader;
  ElementRange want = slow(values);
  ArrayRef<char> bytes(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T));
  compare(reader.read(DenseElementsAttr::getFromRawBuffer(shape, bytes)), want, "an attribute");
  auto blob = HeapAsmResourceBlob::allocateAndCopyInferAlign(ArrayRef<T>(values));
  compare(reader.read(DenseResourceElementsAttr::get(shape, "blob", std::move(blob))), want, "a resource");
}

template <typename T> void checkFloats(Type type) {
  constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  constexpr T least = std::numeric_limits<T>::denorm_min(), most = std::numeric_limits<T>::max();
  for (const std::vector<T> &values : std::initializer_list<std::vector<T>>{{0},
                                                                            {T(-0.0)},
                                                                            {1},
                                                                            {-3},
                                                                            {T(-2.5), -1},
                                                                            {least},
                                                                            {-least, most},
                                                                            {infinity},
                                                                            {nan, -infinity},
                                                                            {nan, 7},
                                                                            {-most, -infinity, 1}})
    check(values, type);
  std::mt19937 engine(3);
  for (size_t count : {size_t(1000), (size_t(1) << 22) + 3}) {
    std::vector<T> values(count);
    for (bool whole : {true, false}) {
      for (T &value : values)
        value = whole ? T(static_cast<int>(engine() % 2001) - 900)
                      : std::ldexp(T(static_cast<int32_t>(engine())), static_cast<int>(engine() % 120) - 90);
      values[count / 2] = infinity;
      check(values, type);
      values.back() = T(-1e30); // in the last piece
      check(values, type);
    }
  }
}
} // namespace

int main() {
  MLIRContext context;
  Builder builder(&context);
  checkFloats<float>(builder.getF32Type());
  checkFloats<double>(builder.getF64Type());
  check<int64_t>({-5, 0, int64_t(1) << 40}, builder.getI64Type());
  check<int32_t>({7, 7, -1}, builder.getI32Type());
  ConstantReader reader;
  auto shape = RankedTensorType::get({2}, builder.getI1Type());
  compare(reader.read(DenseElementsAttr::get(shape, ArrayRef<bool>{true, false})), slow<int>({1, 0}), "flags");
  auto half = cast<DenseElementsAttr>(
      DenseElementsAttr::get(RankedTensorType::get({2}, builder.getF32Type()), ArrayRef<float>{-0.5f, 4}));
  compare(reader.read(half.mapValues(builder.getF16Type(),
                                     [](const APFloat &value) {
                                       APFloat narrow = value;
                                       bool loses;
                                       narrow.convert(APFloat::IEEEhalf(), APFloat::rmNearestTiesToEven, &loses);
                                       return narrow.bitcastToAPInt();
                                     })),
          slow<float>({-0.5f, 4}), "halves");
  ElementRange splat = slow<float>({-3});
  splat.elements = 6;
  compare(reader.read(DenseElementsAttr::get(RankedTensorType::get({6}, builder.getF32Type()), -3.0f)), splat,
          "a splat");
  compare(reader.read(builder.getF64FloatAttr(0.25)), slow<double>({0.25}), "a number");
  compare(reader.read(builder.getDenseI64ArrayAttr({3, -4})), slow<int64_t>({3, -4}), "a list");
  expect(!reader.read({}) && !reader.read(builder.getStringAttr("text")), "no constant", 0);
  std::printf("constant reader: %d wrong\n", failures);
  return failures ? 1 : 0;
}
