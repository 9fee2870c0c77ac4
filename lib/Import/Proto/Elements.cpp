// SPDX-License-Identifier: Apache-2.0
// Elements of tensors as rows of a table: exporters fold look-ups whose indices are constant.
#include "Elements.h"
#include "Proto.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace mpt;
using namespace mpt::proto;

Elements::Elements(const ::onnx::TensorProto &tensor, StringRef folder, Location loc)
    : extents(tensor.dims().begin(), tensor.dims().end()) {
  ::onnx::TensorProto copy = tensor.has_raw_data() ? ::onnx::TensorProto() : tensor;
  if (tensor.has_raw_data())
    bytes = ArrayRef<char>(tensor.raw_data().data(), tensor.raw_data().size());
  else if (FailureOr<ElementsAttr> values = tensorAttr(copy, folder, loc); succeeded(values)) {
    held = *values;
    auto resource = dyn_cast<DenseResourceElementsAttr>(held);
    AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
    if (auto dense = dyn_cast<DenseElementsAttr>(held); dense && !dense.isSplat())
      bytes = dense.getRawData();
    else if (blob)
      bytes = blob->getData();
  }
  count = ShapedType::getNumElements(extents);
  width = count > 0 ? static_cast<int64_t>(bytes.size()) / count : 0;
}

bool Elements::isTelling() const {
  int64_t second = 0;
  for (int64_t i = 1; i < count; ++i)
    if (!same(i, *this, 0) && !(second && same(i, *this, second))) {
      if (second)
        return true;
      second = i;
    }
  return false;
}

/// Visits the tensor's vectors along `axis` in the order of its other axes, until the visitor returns false.
static bool visitRows(const Elements &tensor, size_t axis, llvm::function_ref<bool(StringRef)> visitor) {
  int64_t extent = tensor.extents[axis], stride = computeSuffixProduct(tensor.extents)[axis];
  std::string row;
  for (int64_t outer = 0; outer < tensor.count; outer += extent * stride)
    for (int64_t inner = 0; inner < stride; ++inner) {
      row.clear();
      for (int64_t i = 0; i < extent; ++i)
        row.append(tensor.bytes.data() + (outer + inner + i * stride) * tensor.width,
                   static_cast<size_t>(tensor.width));
      if (!visitor(row))
        return false;
    }
  return true;
}

std::vector<int64_t> LookUp::elements(ArrayRef<int64_t> extents) const {
  int64_t extent = extents[axis], stride = computeSuffixProduct(extents)[axis];
  std::vector<int64_t> result;
  for (int64_t i = 0, count = ShapedType::getNumElements(extents); i < count; ++i) {
    int64_t place = i / (extent * stride) * stride + i % stride;
    result.push_back(rows[static_cast<size_t>(place)] * extent + i / stride % extent);
  }
  return result;
}

TableRows::TableRows(const Elements &table) {
  int64_t index = 0;
  visitRows(table, 1, [&](StringRef row) {
    known.try_emplace(row, index++);
    return true;
  });
}

std::optional<LookUp> TableRows::find(const Elements &tensor, size_t axis) const {
  LookUp result{axis, {}};
  bool all = visitRows(tensor, axis, [&](StringRef row) {
    auto found = known.find(row);
    if (found != known.end())
      result.rows.push_back(found->second);
    return found != known.end();
  });
  return all ? std::optional(std::move(result)) : std::nullopt;
}

void TableRows::add(const Elements &tensor, size_t axis) {
  visitRows(tensor, axis, [&](StringRef row) {
    if (int64_t next = count(); known.try_emplace(row, next).second)
      all += row;
    return true;
  });
}

std::vector<float> TableRows::floats() const {
  std::vector<float> result(all.size() / sizeof(float));
  std::memcpy(result.data(), all.data(), result.size() * sizeof(float));
  return result;
}

bool TableRows::areMasked() const {
  return llvm::any_of(floats(), [](float value) { return !(value > -100) || std::isinf(value); });
}

bool TableRows::areMultiples(int64_t width) const {
  std::vector<float> values = floats();
  auto largest =
      std::max_element(values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
  auto step = static_cast<size_t>(width), at = static_cast<size_t>(largest - values.begin());
  const float *row = values.data() + at / step * step;
  for (size_t i = 0; i < values.size(); ++i) {
    float factor = values[i / step * step + at % step] / *largest;
    if (std::abs(values[i] - factor * row[i % step]) > 1e-4f * std::abs(*largest))
      return false;
  }
  return true;
}

std::optional<size_t> proto::axisOfRows(const Elements &tensor) {
  // A row stands twice on average, or its repetition may be an accident.
  int64_t least = tensor.count / 2 + 1;
  std::optional<size_t> best;
  for (auto [axis, extent] : llvm::enumerate(tensor.extents))
    if (extent > 1) {
      TableRows rows;
      rows.add(tensor, axis);
      if (int64_t size = rows.count() * extent; size < least) {
        least = size;
        best = axis;
      }
    }
  return best;
}
