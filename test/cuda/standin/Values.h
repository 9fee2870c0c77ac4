// SPDX-License-Identifier: Apache-2.0
// Elements of the types that the fake libraries compute on.
#ifndef MPT_TEST_CUDA_STANDIN_VALUES_H
#define MPT_TEST_CUDA_STANDIN_VALUES_H

#include "core/Float.h"

#include <cstdint>
#include <cstring>

namespace standin {

enum class Type { F32, F64, F16, BF16, E4M3, E5M2 };

inline int64_t sizeOf(Type type) {
  return type == Type::F64 ? 8 : type == Type::F32 ? 4 : type == Type::F16 || type == Type::BF16 ? 2 : 1;
}

inline double load(Type type, const void *base, int64_t i) {
  auto *p = static_cast<const char *>(base) + i * sizeOf(type);
  auto as = [&](auto value) {
    memcpy(&value, p, sizeof value);
    return value;
  };
  using namespace mpt::rt;
  switch (type) {
  case Type::F64:
    return as(double());
  case Type::F32:
    return static_cast<double>(as(float()));
  case Type::F16:
    return static_cast<double>(fromF16(as(uint16_t())));
  case Type::BF16:
    return static_cast<double>(fromBF16(as(uint16_t())));
  case Type::E4M3:
    return static_cast<double>(fromE4M3FN(as(uint8_t())));
  default:
    return static_cast<double>(fromE5M2(as(uint8_t())));
  }
}

inline void store(Type type, void *base, int64_t i, double value) {
  auto *p = static_cast<char *>(base) + i * sizeOf(type);
  auto put = [&](auto bits) { memcpy(p, &bits, sizeof bits); };
  auto narrow = static_cast<float>(value);
  using namespace mpt::rt;
  switch (type) {
  case Type::F64:
    return put(value);
  case Type::F32:
    return put(narrow);
  case Type::F16:
    return put(toF16(narrow));
  case Type::BF16:
    return put(toBF16(narrow));
  case Type::E4M3:
    return put(toE4M3FN(narrow));
  default:
    return put(toE5M2(narrow));
  }
}

} // namespace standin

#endif
