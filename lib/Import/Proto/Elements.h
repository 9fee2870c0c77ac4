// SPDX-License-Identifier: Apache-2.0
// The bytes of a tensor of the file, element by element, and the rows of a table that they are.
#ifndef MPT_LIB_IMPORT_PROTO_ELEMENTS_H
#define MPT_LIB_IMPORT_PROTO_ELEMENTS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringMap.h"

#include <cstring>
#include <optional>
#include <vector>

namespace mpt::proto {

/// A tensor of the file, with its bytes once somebody looks at them; none where all elements are one.
struct Elements {
  Elements(const ::onnx::TensorProto &tensor, llvm::StringRef folder, mlir::Location loc);

  bool same(int64_t i, const Elements &other, int64_t k) const {
    return std::memcmp(bytes.data() + i * width, other.bytes.data() + k * width, static_cast<size_t>(width)) == 0;
  }

  /// Equal by accident are tensors of one or two numbers, as zeros and identities.
  bool isTelling() const;

  llvm::SmallVector<int64_t> extents;
  int64_t count = 0, width = 0;
  mlir::ElementsAttr held;
  llvm::ArrayRef<char> bytes;
};

/// A tensor whose vectors along `axis` are rows of a table: which one, by their place among the other axes.
struct LookUp {
  size_t axis = 0;
  std::vector<int64_t> rows;

  /// The element of the table, `width` to a row, that each element of a tensor of these extents is.
  std::vector<int64_t> elements(llvm::ArrayRef<int64_t> extents) const;
};

/// Rows of a table, each once.
class TableRows {
public:
  TableRows() = default;
  /// The rows of a matrix in the file.
  explicit TableRows(const Elements &table);

  /// The tensor as a look-up along `axis`; none where the table lacks a row.
  std::optional<LookUp> find(const Elements &tensor, size_t axis) const;
  /// Adds the rows that the table lacks.
  void add(const Elements &tensor, size_t axis);

  int64_t count() const { return static_cast<int64_t>(known.size()); }
  /// True for FP32 rows with an element that is not finite or far below zero.
  bool areMasked() const;
  /// True for FP32 rows of `width` that are multiples of one.
  bool areMultiples(int64_t width) const;
  const std::string &bytes() const { return all; }

private:
  std::vector<float> floats() const;

  std::string all;
  llvm::StringMap<int64_t> known;
};

/// The axis along which a tensor's vectors repeat most, as in a look-up; none where they hardly do.
std::optional<size_t> axisOfRows(const Elements &tensor);

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_ELEMENTS_H
