// SPDX-License-Identifier: Apache-2.0
// Sizes and names of the element types, and where values begin in memory.
#ifndef MPT_RUNTIME_CORE_TYPES_H
#define MPT_RUNTIME_CORE_TYPES_H

#include "mpt-c/types.h"

#include <cstring>
#include <string_view>

namespace mpt::rt {

/// Values that functions read and write begin at multiples of so many bytes.
inline constexpr int64_t valueAlignment = 64;
inline int64_t roundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

/// Byte by byte, as of the descriptions of two calls: a factor that is NaN is the same as itself.
template <typename T> bool hasSameBits(const T &a, const T &b) {
  auto bytes = [](const T &of) { return std::string_view(reinterpret_cast<const char *>(&of), sizeof of); };
  return bytes(a) == bytes(b);
}

/// `safetensors` is the type's name in a state file, where it has one.
struct TypeInfo {
  int64_t dtype;
  int64_t size;
  const char *name;
  const char *safetensors;
};

inline constexpr TypeInfo typeTable[] = {
    {MPT_FLOAT32, 4, "float32", "F32"},
    {MPT_FLOAT16, 2, "float16", "F16"},
    {MPT_BFLOAT16, 2, "bfloat16", "BF16"},
    {MPT_FLOAT64, 8, "float64", "F64"},
    {MPT_INT16, 2, "int16", "I16"},
    {MPT_UINT16, 2, "uint16", "U16"},
    {MPT_INT32, 4, "int32", "I32"},
    {MPT_UINT32, 4, "uint32", "U32"},
    {MPT_INT64, 8, "int64", "I64"},
    {MPT_UINT64, 8, "uint64", "U64"},
    {MPT_UINT8, 1, "uint8", "U8"},
    {MPT_INT8, 1, "int8", "I8"},
    {MPT_BOOL, 1, "bool", "BOOL"},
    {MPT_FLOAT8E4M3FN, 1, "float8e4m3fn", "F8_E4M3"},
    {MPT_FLOAT8E5M2, 1, "float8e5m2", "F8_E5M2"},
};

/// Null for a number that is no element type.
inline const TypeInfo *typeInfo(int64_t dtype) {
  for (const TypeInfo &type : typeTable)
    if (type.dtype == dtype)
      return &type;
  return nullptr;
}

inline int64_t sizeOf(int64_t dtype) {
  const TypeInfo *type = typeInfo(dtype);
  return type ? type->size : 0;
}

inline const char *nameOf(int64_t dtype) {
  const TypeInfo *type = typeInfo(dtype);
  return type ? type->name : "unknown type";
}

} // namespace mpt::rt

#endif
