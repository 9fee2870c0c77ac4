// SPDX-License-Identifier: Apache-2.0
// How NVIDIA's Tensor Cores add up products, bit for bit.
//
// A matrix instruction adds a group of products and the running sum at once: it aligns all of them to the largest
// exponent among them, drops their lower bits, adds what is left exactly, and truncates the sum. The numbers in the
// table are from two studies that reproduce hardware:
//   P. Xie, Y. Wang, F. Yang, M. Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores",
//   arXiv 2511.10909 (mma of sm_80 and sm_89, wgmma of sm_90, tcgen05.mma of sm_100);
//   mmaemu 0.1.0 (PyPI): 8-bit GEMMs of cuBLASLt on sm_89 and sm_90, and the partial sums that it moves to FP32.
#ifndef MPT_SUPPORT_TENSORCORES_H
#define MPT_SUPPORT_TENSORCORES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace mpt {

enum class OperandFormat { F16, BF16, TF32, E4M3, E5M2 };

/// The sums of one kind of operands on one architecture.
struct TensorCoreSums {
  int products;   ///< that are added at once
  int addendBits; ///< of a product or running sum below the largest exponent, beyond which it is truncated
  int resultBits; ///< of the new running sum's fraction; truncated, too
  int promoted;   ///< products after which the library adds the running sum to one in FP32, to nearest; 0: never

  /// The running sum after up to `products` more: of a[i] b[i], with `x` from exponentsOf. Sums that are not finite are
  /// IEEE's, and NaN is the hardware's.
  double add(double sum, llvm::ArrayRef<double> a, llvm::ArrayRef<int> aExponents, llvm::ArrayRef<double> b,
             llvm::ArrayRef<int> bExponents) const;
  /// The sum of all products, from `sum` on, in order, without promotion.
  double dot(double sum, llvm::ArrayRef<double> a, OperandFormat aFormat, llvm::ArrayRef<double> b,
             OperandFormat bFormat) const;

  bool narrowerThanF32() const { return resultBits < 23; }
  /// Sums of `length` products that are narrower than FP32 are partial sums, of at most 128 products.
  bool addsUpInF32(int64_t length) const;
  /// Error of a sum of `length` products of random sign, relative to its size. Truncations of products add up as their
  /// root; the ones of the running sum, always towards zero, one by one. Measured errors of 8-bit sums
  /// (docs/results/tensor-core-sums.md) are half of it; of products of one sign, up to three times without fast sums.
  double typicalError(int64_t length) const;
  /// Bound of the error relative to the sum of the products' magnitudes.
  double largestError(int64_t length) const;

private:
  int64_t instructions(int64_t length) const;
};

/// The Tensor Cores of one architecture, as cuBLASLt and cuDNN use them.
class TensorCore {
public:
  /// By names(), or such a name with the suffix of its architecture's special instructions (sm_90a).
  static std::optional<TensorCore> named(llvm::StringRef name);
  /// Architectures, and those on which the trainers' option fast-sums changes sums, with "+fast-sums".
  static llvm::SmallVector<std::string> names();

  llvm::StringRef name() const { return spelled; }
  /// Null where no instruction multiplies this pair.
  std::optional<TensorCoreSums> sums(OperandFormat a, OperandFormat b) const;

private:
  std::string spelled;
  llvm::StringRef architecture;
  bool fastSums = false;
};

/// The exponent by which hardware aligns products of `x`: that of the leading bit, at least of the format's normal
/// numbers, and FP32's least for zero.
int alignedExponent(double x, OperandFormat format);

} // namespace mpt

#endif // MPT_SUPPORT_TENSORCORES_H
