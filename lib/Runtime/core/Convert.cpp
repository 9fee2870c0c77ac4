// SPDX-License-Identifier: Apache-2.0
// Element-wise conversion for parameters and metrics; nothing here is in a training step's inner loop.
#include "core/Convert.h"

#include "core/Float.h"

namespace mpt::rt {
namespace {

template <typename T, typename F> void each(const void *in, int64_t count, float *out, F widen) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = widen(elementAt<T>(in, i));
}

template <typename T, typename F> void each(const float *in, int64_t count, void *out, F narrow) {
  auto *to = static_cast<T *>(out);
  for (int64_t i = 0; i < count; ++i)
    to[i] = narrow(in[i]);
}

template <typename T> float plain(T x) { return static_cast<float>(x); }

/// Truncates without undefined behaviour for values out of range and NaN.
template <typename T> T truncate(float x) {
  constexpr bool isSigned = static_cast<T>(-1) < static_cast<T>(0);
  constexpr int bits = 8 * sizeof(T) - isSigned;
  const double limit = bits == 64 ? 0x1p64 : static_cast<double>(uint64_t{1} << (bits % 64));
  constexpr T high = static_cast<T>(~uint64_t{0} >> (64 - bits)), low = isSigned ? static_cast<T>(-high - 1) : T{0};
  double wide = static_cast<double>(x);
  return wide != wide ? T{0} : wide >= limit ? high : wide <= (isSigned ? -limit : 0) ? low : static_cast<T>(wide);
}

} // namespace

bool isFloating(int64_t dtype) {
  return dtype == MPT_FLOAT32 || dtype == MPT_FLOAT16 || dtype == MPT_BFLOAT16 || dtype == MPT_FLOAT64 ||
         dtype == MPT_FLOAT8E4M3FN || dtype == MPT_FLOAT8E5M2;
}

void toFloat(int64_t dtype, const void *in, int64_t count, float *out) {
  switch (dtype) {
  case MPT_FLOAT32:
    return each<float>(in, count, out, plain<float>);
  case MPT_FLOAT16:
    return each<uint16_t>(in, count, out, fromF16);
  case MPT_BFLOAT16:
    return each<uint16_t>(in, count, out, fromBF16);
  case MPT_FLOAT64:
    return each<double>(in, count, out, plain<double>);
  case MPT_FLOAT8E4M3FN:
    return each<uint8_t>(in, count, out, fromE4M3FN);
  case MPT_FLOAT8E5M2:
    return each<uint8_t>(in, count, out, fromE5M2);
  case MPT_INT16:
    return each<int16_t>(in, count, out, plain<int16_t>);
  case MPT_UINT16:
    return each<uint16_t>(in, count, out, plain<uint16_t>);
  case MPT_INT32:
    return each<int32_t>(in, count, out, plain<int32_t>);
  case MPT_UINT32:
    return each<uint32_t>(in, count, out, plain<uint32_t>);
  case MPT_INT64:
    return each<int64_t>(in, count, out, plain<int64_t>);
  case MPT_UINT64:
    return each<uint64_t>(in, count, out, plain<uint64_t>);
  case MPT_INT8:
    return each<int8_t>(in, count, out, plain<int8_t>);
  case MPT_UINT8:
  case MPT_BOOL:
    return each<uint8_t>(in, count, out, plain<uint8_t>);
  }
}

void fromFloat(int64_t dtype, const float *in, int64_t count, void *out) {
  switch (dtype) {
  case MPT_FLOAT32:
    return each<float>(in, count, out, plain<float>);
  case MPT_FLOAT16:
    return each<uint16_t>(in, count, out, toF16);
  case MPT_BFLOAT16:
    return each<uint16_t>(in, count, out, toBF16);
  case MPT_FLOAT64:
    return each<double>(in, count, out, [](float x) { return static_cast<double>(x); });
  case MPT_FLOAT8E4M3FN:
    return each<uint8_t>(in, count, out, toE4M3FN);
  case MPT_FLOAT8E5M2:
    return each<uint8_t>(in, count, out, toE5M2);
  case MPT_INT16:
    return each<int16_t>(in, count, out, truncate<int16_t>);
  case MPT_UINT16:
    return each<uint16_t>(in, count, out, truncate<uint16_t>);
  case MPT_INT32:
    return each<int32_t>(in, count, out, truncate<int32_t>);
  case MPT_UINT32:
    return each<uint32_t>(in, count, out, truncate<uint32_t>);
  case MPT_INT64:
    return each<int64_t>(in, count, out, truncate<int64_t>);
  case MPT_UINT64:
    return each<uint64_t>(in, count, out, truncate<uint64_t>);
  case MPT_INT8:
    return each<int8_t>(in, count, out, truncate<int8_t>);
  case MPT_UINT8:
    return each<uint8_t>(in, count, out, truncate<uint8_t>);
  case MPT_BOOL:
    return each<uint8_t>(in, count, out, [](float x) { return static_cast<uint8_t>(x != 0); });
  }
}

} // namespace mpt::rt
