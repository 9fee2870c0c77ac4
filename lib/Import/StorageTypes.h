// SPDX-License-Identifier: Apache-2.0
// ONNX types that core does not compute in: they are stored in bytes, one an element, and decoded where they are used.
#ifndef MPT_LIB_IMPORT_STORAGETYPES_H
#define MPT_LIB_IMPORT_STORAGETYPES_H

#include "Binder.h"

namespace mpt {

/// Domain of the operators that stand for others where such types are involved.
constexpr llvm::StringLiteral storageDomain = "mpt-storage";

/// True for the numbers of TensorProto.DataType of such types: E4M3FNUZ, E5M2FNUZ, E2M1, E8M0 and integers of 4 and 2
/// bits.
inline bool isStorageType(int64_t type) { return type == 18 || (type >= 20 && type <= 26); }

/// The numbers that bytes `x` stand for in `type`, a number of TensorProto.DataType: FP32 for floats, bytes for
/// integers.
mlir::Value decodeStorage(Binder &b, mlir::Value x, int64_t type);

/// The bytes of numbers `x` in `type`. Floats are rounded to nearest even; 8-bit exponents as `roundMode` says (up,
/// down or nearest). Larger numbers become the largest one, or NaN unless it `saturate`s. Integers wrap.
mlir::Value encodeStorage(Binder &b, mlir::Value x, int64_t type, bool saturate, llvm::StringRef roundMode);

/// Least and largest number of an integer type of fewer than 8 bits; none for others.
std::optional<std::pair<int64_t, int64_t>> storageRange(int64_t type);

} // namespace mpt

#endif // MPT_LIB_IMPORT_STORAGETYPES_H
