// SPDX-License-Identifier: Apache-2.0
// Tensors of the reference interpreter: FP64 or int64 elements in row-major order, whatever the element type.
#ifndef MPT_EVALUATION_TENSOR_H
#define MPT_EVALUATION_TENSOR_H

#include "mpt/Evaluation/FloatFormat.h"

#include "mlir/IR/BuiltinAttributes.h"
#include <memory>
#include <vector>

namespace mpt {

/// A value of a ranked, static tensor type. Floats are doubles (which hold every value of every float type up to f64),
/// integers are int64 (i1 is 0 or 1, signless types are signed, unsigned ones zero-extended). Copies share storage
/// until one of them is written.
class Tensor {
public:
  Tensor() = default;
  /// Zeros.
  explicit Tensor(mlir::RankedTensorType type);

  /// The elements of a dense or blob attribute; fails with a message at `loc` where the data is absent.
  static llvm::FailureOr<Tensor> fromAttribute(mlir::ElementsAttr value, mlir::Location loc);
  /// From and to packed little-endian elements (i1 takes a byte). `bytes` must have byteSize() bytes.
  static Tensor fromBytes(mlir::RankedTensorType type, llvm::ArrayRef<char> bytes);
  std::vector<char> toBytes() const;
  static int64_t byteSize(mlir::RankedTensorType type);
  /// The same elements as an attribute, a splat where all encodings are equal.
  mlir::DenseElementsAttr toAttribute() const;

  explicit operator bool() const { return static_cast<bool>(type); }
  mlir::RankedTensorType getType() const { return type; }
  mlir::Type getElementType() const { return type.getElementType(); }
  llvm::ArrayRef<int64_t> shape() const { return type.getShape(); }
  int64_t rank() const { return type.getRank(); }
  int64_t size() const { return type.getNumElements(); }
  bool isFloat() const { return llvm::isa<mlir::FloatType>(type.getElementType()); }

  llvm::ArrayRef<double> reals() const { return storage->reals; }
  llvm::ArrayRef<int64_t> ints() const { return storage->ints; }
  /// Unsigned integers of 64 bits are held as int64 bit patterns; comparisons and divisions have to read them as words.
  bool isUnsigned64() const { return type.getElementType().isUnsignedInteger(64); }
  llvm::ArrayRef<uint64_t> words() const {
    return {reinterpret_cast<const uint64_t *>(storage->ints.data()), storage->ints.size()};
  }
  llvm::MutableArrayRef<double> writeReals() { return detach().reals; }
  llvm::MutableArrayRef<int64_t> writeInts() { return detach().ints; }
  /// Element `i` as a number, whatever the element type.
  double number(int64_t i) const {
    return isFloat() ? storage->reals[i] : isUnsigned64() ? double(words()[i]) : double(storage->ints[i]);
  }
  void setNumber(int64_t i, double value);

  /// The same elements under another type of as many elements; between float types, rounded to `type` when `rounds`.
  Tensor as(mlir::RankedTensorType type, bool rounds = false) const;
  void retype(mlir::RankedTensorType other);
  /// Rounds (floats) or wraps (integers) every element to the element type.
  void normalize();
  /// Encoding of element i in the element type.
  uint64_t bits(int64_t i) const;

private:
  struct Storage {
    std::vector<double> reals;
    std::vector<int64_t> ints;
  };
  Storage &detach();

  mlir::RankedTensorType type;
  std::shared_ptr<Storage> storage;
};

/// Row-major strides, in elements, of `shape`.
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);
/// `value` as an integer type holds it: wrapped to its width.
int64_t wrapInteger(int64_t value, mlir::Type type);

/// Calls fn(const input elements, output elements) with the arrays of doubles or of int64 that the tensors hold.
template <typename Fn> void withElements(const Tensor &in, Tensor &out, Fn fn) {
  if (out.isFloat())
    fn(in.reals(), out.writeReals());
  else
    fn(in.ints(), out.writeInts());
}

/// Calls fn(linear row-major position, position under `strides`) for every index of `shape`, in row-major order.
template <typename Fn>
void forEachStrided(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides, int64_t base, Fn fn) {
  int64_t rank = shape.size(), linear = 0;
  for (int64_t extent : shape)
    if (extent == 0)
      return;
  llvm::SmallVector<int64_t> index(rank, 0);
  while (true) {
    int64_t inner = rank ? shape[rank - 1] : 1, step = rank ? strides[rank - 1] : 0;
    for (int64_t i = 0; i < inner; ++i)
      fn(linear++, base + i * step);
    int64_t dim = rank - 2;
    for (; dim >= 0; --dim) {
      base += strides[dim];
      if (++index[dim] < shape[dim])
        break;
      base -= strides[dim] * shape[dim];
      index[dim] = 0;
    }
    if (dim < 0)
      return;
  }
}

} // namespace mpt

#endif // MPT_EVALUATION_TENSOR_H
