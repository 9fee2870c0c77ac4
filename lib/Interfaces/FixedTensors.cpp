// SPDX-License-Identifier: Apache-2.0
// Masks, tables, windows, filters and positions, by their values alone: exporters keep neither a reliable name nor a
// flag for a module's buffers.
#include "mpt/Interfaces/FixedTensors.h"

#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// Shorter lines have too few elements to tell a symmetric filter from chance.
constexpr int64_t shortestLine = 8;
/// Filters of a convolution are judged from so many taps on: fewer have no three magnitudes where they are symmetric.
constexpr int64_t shortestFilter = 5;
/// Larger tensors are layers' weights, which are in files that nobody reads as a whole.
constexpr int64_t mostElements = 1 << 22;
/// Elements of a line are compared with this part of its largest magnitude. Bases are computed in FP32 or stored in
/// FP16.
constexpr double tolerance = 1e-3;

/// The elements of a tensor of floats; none where they are not known or all equal.
class Elements {
public:
  explicit Elements(ElementsAttr values) {
    if (!values)
      return;
    ShapedType shaped = values.getShapedType();
    type = shaped.getElementType();
    if (!type.isF32() && !type.isF16() && !type.isBF16() && !type.isF64())
      return;
    auto dense = dyn_cast_or_null<DenseElementsAttr>(values);
    auto resource = dyn_cast_or_null<DenseResourceElementsAttr>(values);
    AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
    if (dense && !dense.isSplat())
      bytes = dense.getRawData();
    else if (blob)
      bytes = blob->getData();
    width = type.getIntOrFloatBitWidth() / 8;
    if (static_cast<int64_t>(bytes.size()) != shaped.getNumElements() * width)
      bytes = {};
  }

  int64_t size() const { return bytes.size() / width; }

  double operator[](int64_t i) const {
    const char *at = bytes.data() + i * width;
    if (type.isF32())
      return read<float>(at);
    if (type.isF64())
      return read<double>(at);
    const llvm::fltSemantics &semantics = cast<FloatType>(type).getFloatSemantics();
    return APFloat(semantics, APInt(16, read<uint16_t>(at))).convertToDouble();
  }

private:
  template <typename T> static T read(const char *at) {
    T value;
    std::memcpy(&value, at, sizeof(T)); // mapped files need no alignment
    return value;
  }

  Type type;
  ArrayRef<char> bytes;
  int64_t width = 1;
};

/// Elements of a tensor along one of its axes.
struct Line {
  const Elements &of;
  int64_t first, stride, size;
  double operator[](int64_t i) const { return of[first + i * stride]; }
};

/// Lines of a tensor in one direction.
struct Lines {
  const Elements &of;
  int64_t count, size, step, stride;
  Line operator[](int64_t i) const { return {of, i * step, stride, size}; }
};

} // namespace

/// True where each element fulfils `is`; false where the values are not known.
static bool allElements(ElementsAttr values, function_ref<bool(double)> is) {
  if (auto dense = dyn_cast_or_null<DenseFPElementsAttr>(values); dense && dense.isSplat())
    return is(dense.getSplatValue<APFloat>().convertToDouble());
  Elements elements(values);
  return elements.size() > 0 && llvm::all_of(llvm::seq(elements.size()), [&](int64_t i) { return is(elements[i]); });
}

bool mpt::isZero(ElementsAttr values) {
  return allElements(values, [](double value) { return value == 0; });
}

bool mpt::isMask(ElementsAttr values) {
  return values && values.getNumElements() > 1 && !isZero(values) &&
         allElements(values, [](double value) { return value == 0 || value <= -1e3; });
}

/// True where the shortest decimal of so many digits is the value, but for `error` relative to it.
static bool hasDigits(double value, int digits, double error) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.*e", digits - 1, value);
  double rounded = 0;
  return !StringRef(text).getAsDouble(rounded) && std::abs(rounded - value) <= error * value;
}

bool mpt::isNumberOfFormula(ElementsAttr values) {
  auto dense = dyn_cast_or_null<DenseFPElementsAttr>(values);
  if (!dense || dense.getNumElements() != 1)
    return false;
  double value = std::abs(dense.getSplatValue<APFloat>().convertToDouble());
  if (value == 0 || !std::isfinite(value))
    return true;
  // pi, e, their logarithms and roots as they are in GELU, softplus and entropies.
  for (double known : {M_PI, M_PI_2, M_PI_4, M_1_PI, M_2_PI, M_2_SQRTPI, M_SQRT2, M_SQRT1_2, M_E, M_LN2, M_LN10,
                       M_LOG2E, M_LOG10E, 2 * M_PI, std::sqrt(2 * M_PI), std::sqrt(M_2_PI), 0.5 * std::log(2 * M_PI)})
    if (std::abs(value - known) <= 1e-6 * known || std::abs(value * known - 1) <= 1e-6)
      return true;
  // 0.044715; 1/6 and 1/255; 1/sqrt(96). Of numbers that training leaves behind one in a hundred and fifty is such.
  return hasDigits(value, 5, 6e-8) || hasDigits(1 / value, 4, 2e-7) || hasDigits(value * value, 3, 2e-7) ||
         hasDigits(1 / (value * value), 3, 2e-7);
}

/// Rows of sines and cosines of growing positions, in pairs, halves or, of two coordinates, quarters; or of one of them
/// from position 0 on.
static bool isSinusoidal(const Elements &values, ArrayRef<int64_t> shape) {
  int64_t width = shape.size() >= 2 ? shape.back() : 0;
  int64_t rows = width < 2 ? 0 : std::min<int64_t>(values.size() / width, 4);
  if (rows < 3)
    return false;
  auto near = [](double a, double b) { return std::abs(a - b) <= tolerance; };
  auto circles = [&](int64_t block) { // of sines, before as many cosines
    for (int64_t row = 0; row < 4; ++row)
      for (int64_t i = 0; i < width / 2; ++i) {
        int64_t at = row * width + i / block * 2 * block + i % block;
        double a = values[at], b = values[at + block];
        if (!near(a * a + b * b, 1))
          return false;
      }
    return true;
  };
  // cos 2a = 2 (cos a)^2 - 1, and (sin 2a)^2 = (2 sin a cos a)^2. Small numbers of any kind would pass for sines of
  // small angles: one has to be large.
  auto doubles = [&](double first) {
    bool any = false;
    for (int64_t i = 0; i < width; ++i) {
      double once = values[width + i], twice = values[2 * width + i], square = once * once;
      if (std::abs(values[i] - first) > 1e-6 ||
          (first == 1 ? !near(twice, 2 * square - 1) : !near(twice * twice, 4 * square * (1 - square))))
        return false;
      any |= std::abs(once) > 0.05 && std::abs(once) < 0.9999; // ones and zeros are of an identity
    }
    return any;
  };
  bool pairs = width % 2 == 0 && width >= 4 && rows == 4;
  return (pairs && (circles(1) || circles(width / 2) || (width % 4 == 0 && circles(width / 4)))) || doubles(1) ||
         doubles(0);
}

static double largest(const Line &line) {
  double most = 0;
  for (int64_t i = 0; i < line.size; ++i)
    most = std::max(most, std::abs(line[i]));
  return most;
}

/// True where the line read backwards is itself, or its negative; a `periodic` one begins again behind its end, as do
/// the rows of a Fourier basis and their windows. The center of a long one may lie between two elements by mistake, as
/// in constant-Q transforms.
static bool isMirrored(const Line &line, bool periodic, double sign, double most) {
  double allowed = (line.size >= 32 ? 0.05 : tolerance) * most;
  if (periodic && sign < 0 && std::abs(line[0]) > allowed)
    return false;
  for (int64_t i = periodic, j = line.size - 1; i <= j; ++i, --j)
    if (std::abs(line[i] - sign * line[j]) > allowed)
      return false;
  return true;
}

static bool isMirrored(const Line &line, double most) {
  return isMirrored(line, false, 1, most) || isMirrored(line, false, -1, most) || isMirrored(line, true, 1, most) ||
         isMirrored(line, true, -1, most);
}

/// True with three different magnitudes that are no straight line: filters that begin as zeros, as ones or as an
/// identity have fewer, and weights of tests count up.
static bool isShaped(const Line &line, double most) {
  SmallVector<double, 3> found;
  double slope = (line[line.size - 1] - line[0]) / (line.size - 1);
  bool isStraight = llvm::all_of(llvm::seq(line.size),
                                 [&](int64_t i) { return std::abs(line[i] - line[0] - i * slope) <= 0.05 * most; });
  if (isStraight)
    return false;
  for (int64_t i = 0; i < line.size && found.size() < 3; ++i) {
    double value = std::abs(line[i]);
    if (value > 2 * tolerance * most &&
        llvm::none_of(found, [&](double other) { return std::abs(value - other) <= 2 * tolerance * most; }))
      found.push_back(value);
  }
  return found.size() == 3;
}

/// True where each line is symmetric or antisymmetric, which no training leaves behind.
static bool areMirrored(const Lines &lines) {
  int64_t shaped = 0;
  double all = 0;
  for (int64_t i = 0; i < lines.count; ++i) {
    Line line = lines[i];
    double most = largest(line);
    all = std::max(all, most);
    if (most <= 1e-6 * all) // sines of multiples of pi
      continue;
    if (!isMirrored(line, most))
      return false;
    shaped += isShaped(line, most);
  }
  return shaped > 0 && 2 * shaped >= lines.count;
}

/// True where the first lines are w, w cos a, w cos 2a and w cos 3a with a window w of any shape: products of three
/// cosines, without a.
static bool areHarmonics(const Lines &lines) {
  if (lines.count < 4 || !isShaped(lines[1], largest(lines[1])))
    return false;
  Line zero = lines[0], one = lines[1], two = lines[2], three = lines[3];
  double most = largest(zero), allowed = tolerance * most * most, least = 0;
  for (int64_t i = 0; i < lines.size; ++i) {
    if (std::abs(two[i] * zero[i] - 2 * one[i] * one[i] + zero[i] * zero[i]) > allowed ||
        std::abs(three[i] * zero[i] - 2 * one[i] * two[i] + one[i] * zero[i]) > allowed)
      return false;
    least = std::min(least, one[i]);
  }
  return least < -0.1 * most; // a cosine over a whole turn; lines that hardly differ fulfil both equations
}

/// True where each line rises from zeros and falls to zeros, as the triangles of a mel scale do.
static bool areBands(const Lines &lines) {
  int64_t zeros = 0, wide = 0;
  for (int64_t i = 0; i < lines.count; ++i) {
    Line line = lines[i];
    int64_t nonzeros = 0;
    bool falls = false;
    for (int64_t k = 0; k < line.size; ++k) {
      double value = line[k], before = k ? line[k - 1] : 0;
      if (value < 0 || (falls && value > before))
        return false;
      falls |= value < before;
      nonzeros += value > 0;
    }
    zeros += line.size - nonzeros;
    wide += nonzeros >= 3;
  }
  return 2 * zeros >= lines.count * lines.size && 4 * wide >= lines.count;
}

/// True for whole and half numbers: cells of a grid, strides, counts. A layer's weight has to be 0, 1, 2, ..., which
/// makes it an expected value.
static bool arePositions(const Elements &values, bool isWeight) {
  double most = 0;
  bool differ = false;
  for (int64_t i = 0; i < values.size(); ++i) {
    double value = values[i];
    if (isWeight ? value != i : 2 * value != std::floor(2 * value))
      return false;
    differ |= value != values[0];
    most = std::max(most, std::abs(value));
  }
  return values.size() >= shortestLine && differ && most >= 2;
}

StringRef mpt::fixedMeaning(ElementsAttr attribute, bool isWeight) {
  Elements values(attribute);
  if (values.size() < 2 || values.size() > mostElements)
    return "";
  SmallVector<int64_t> shape(attribute.getShapedType().getShape());
  if (isSinusoidal(values, shape))
    return "sinusoidal table";
  bool isVector = values.size() == *llvm::max_element(shape);
  // A bias that a test counts up has one axis, grids and weights have several.
  if (shape.size() >= 2 && (isVector || !isWeight) && arePositions(values, isWeight))
    return "positions";
  if (isWeight && shape.size() >= 3) {
    int64_t taps = values.size() / (shape[0] * shape[1]);
    Lines filters{values, shape[0] * shape[1], taps, taps, 1};
    if (taps >= shortestFilter && (areMirrored(filters) || areHarmonics(filters)))
      return "fixed filter";
  }
  if (isVector)
    return values.size() >= shortestLine && areMirrored({values, 1, values.size(), 0, 1}) ? "window" : "";
  llvm::erase(shape, 1);
  if (shape.size() != 2)
    return "";
  int64_t rows = shape[0], columns = shape[1];
  Lines along{values, rows, columns, columns, 1}, across{values, columns, rows, 1, columns};
  for (const Lines &lines : {along, across}) {
    if (lines.size >= shortestLine && lines.count >= shortestLine && areBands(lines))
      return "filter bank";
    if (lines.size >= shortestLine && (areMirrored(lines) || areHarmonics(lines)))
      return "fixed filter";
  }
  return "";
}
