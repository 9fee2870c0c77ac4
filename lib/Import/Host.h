// SPDX-License-Identifier: Apache-2.0
// Small constant tensors as plain numbers, for shape arithmetic.
#ifndef MPT_LIB_IMPORT_HOST_H
#define MPT_LIB_IMPORT_HOST_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

#include <vector>

namespace mpt {

/// A tensor's numbers: doubles for float elements (each holds the exact value), int64 for integers; one number if
/// splat.
struct HostTensor {
  mlir::RankedTensorType type;
  bool splat = false;
  std::vector<double> floats;
  std::vector<int64_t> ints;

  explicit HostTensor(mlir::RankedTensorType type) : type(type) {}
  bool isFloat() const { return llvm::isa<mlir::FloatType>(type.getElementType()); }
  int64_t count() const { return splat ? 1 : type.getNumElements(); }
  double real(int64_t i) const {
    i = splat ? 0 : i;
    return isFloat() ? floats[i] : static_cast<double>(ints[i]);
  }
  int64_t integer(int64_t i) const { return ints[splat ? 0 : i]; }
  void resize() { isFloat() ? floats.resize(count()) : ints.resize(count()); }
  /// Element `i` becomes element `j` of `from`.
  void copy(int64_t i, const HostTensor &from, int64_t j) {
    if (isFloat())
      floats[i] = from.floats[from.splat ? 0 : j];
    else
      ints[i] = from.ints[from.splat ? 0 : j];
  }
};

/// The numbers of an attribute; none for element types that have none here.
std::optional<HostTensor> readHost(mlir::ElementsAttr attr);
/// An attribute of the tensor's type: integers wrap, floats round to nearest even.
mlir::DenseElementsAttr writeHost(const HostTensor &tensor);

} // namespace mpt

#endif // MPT_LIB_IMPORT_HOST_H
