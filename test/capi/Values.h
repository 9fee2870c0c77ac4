// SPDX-License-Identifier: Apache-2.0
// Buffers of any floating-point type, read and written as FP64, and a context to call library routines with.
#ifndef MPT_TEST_CAPI_VALUES_H
#define MPT_TEST_CAPI_VALUES_H

#include "core/Context.h"
#include "core/Float.h"
#include "core/Types.h"

#include <cstdlib>
#include <vector>

namespace mpt::test {

/// Exactly as long as its contents, so that AddressSanitizer sees a read past the end.
struct Values {
  int64_t dtype;
  std::vector<uint8_t> bytes;

  Values(int64_t dtype, int64_t count) : dtype(dtype), bytes(static_cast<size_t>(count * rt::sizeOf(dtype))) {}

  static Values random(int64_t dtype, int64_t count) {
    Values v(dtype, count);
    for (int64_t i = 0; i < count; ++i)
      v.set(i, (rand() % 2001 - 1000) / 1000.0);
    return v;
  }

  int64_t count() const { return static_cast<int64_t>(bytes.size()) / rt::sizeOf(dtype); }
  void *data() { return bytes.data(); }

  std::vector<double> all() const {
    std::vector<double> out;
    out.reserve(static_cast<size_t>(count()));
    for (int64_t i = 0; i < count(); ++i)
      out.push_back((*this)[i]);
    return out;
  }

  template <typename T> T as(int64_t i) const {
    T x;
    memcpy(&x, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  }
  template <typename T> void put(int64_t i, T x) {
    memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  }

  double operator[](int64_t i) const {
    switch (dtype) {
    case MPT_FLOAT64:
      return as<double>(i);
    case MPT_FLOAT16:
      return static_cast<double>(rt::fromF16(as<uint16_t>(i)));
    case MPT_BFLOAT16:
      return static_cast<double>(rt::fromBF16(as<uint16_t>(i)));
    case MPT_FLOAT8E4M3FN:
      return static_cast<double>(rt::fromE4M3FN(as<uint8_t>(i)));
    case MPT_FLOAT8E5M2:
      return static_cast<double>(rt::fromE5M2(as<uint8_t>(i)));
    default:
      return static_cast<double>(as<float>(i));
    }
  }

  void set(int64_t i, double value) {
    auto x = static_cast<float>(value);
    switch (dtype) {
    case MPT_FLOAT64:
      return put(i, value);
    case MPT_FLOAT16:
      return put(i, rt::toF16(x));
    case MPT_BFLOAT16:
      return put(i, rt::toBF16(x));
    case MPT_FLOAT8E4M3FN:
      return put(i, rt::toE4M3FN(x));
    case MPT_FLOAT8E5M2:
      return put(i, rt::toE5M2(x));
    default:
      return put(i, x);
    }
  }
};

/// The context of a function with one library call.
struct Call {
  rt::Context context;
  mpt_exec exec{};
  explicit Call(int threads) {
    context.threads = threads;
    context.sites.resize(1);
    exec.runtime = &context;
  }
};

} // namespace mpt::test

#endif
