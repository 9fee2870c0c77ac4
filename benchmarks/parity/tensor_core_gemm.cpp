// SPDX-License-Identifier: Apache-2.0
// GEMMs of emitted libraries with the sums of a Tensor Core: a library to preload, in which mpt_rt_gemm computes the
// sums of 8- and 16-bit operands as lib/Support/TensorCores does, and hands them to the runtime's own mpt_rt_gemm, as a
// product with the identity, for everything behind the sum (scale, bias, activation, rounding). Other GEMMs go to the
// runtime as they are.
#include "mpt-c/abi.h"
#include "mpt/Support/TensorCores.h"

#include "core/Float.h"
#include "core/Types.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <random>
#include <vector>

using namespace mpt;

namespace {

std::optional<TensorCore> core;
int64_t gemms = 0;

/// The runtime's own function, of the library that the process has loaded.
decltype(&mpt_rt_gemm) runtimeGemm() {
  static auto *found = [] {
    std::string path;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *result) {
          if (std::strstr(info->dlpi_name, "libmpt_rt.so"))
            *static_cast<std::string *>(result) = info->dlpi_name;
          return 0;
        },
        &path);
    void *library = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
    void *symbol = library ? dlsym(library, "mpt_rt_gemm") : nullptr;
    if (!symbol) {
      std::fprintf(stderr, "tensor_core_gemm: expected libmpt_rt.so in this process\n");
      std::abort();
    }
    return reinterpret_cast<decltype(&mpt_rt_gemm)>(symbol);
  }();
  return found;
}

std::optional<OperandFormat> formatOf(int64_t type, int64_t flags) {
  switch (type) {
  case MPT_FLOAT16:
    return OperandFormat::F16;
  case MPT_BFLOAT16:
    return OperandFormat::BF16;
  case MPT_FLOAT8E4M3FN:
    return OperandFormat::E4M3;
  case MPT_FLOAT8E5M2:
    return OperandFormat::E5M2;
  case MPT_FLOAT32:
    if (flags & MPT_GEMM_READ_F16)
      return OperandFormat::F16;
    if (flags & MPT_GEMM_READ_BF16)
      return OperandFormat::BF16;
    return std::nullopt;
  default:
    return std::nullopt;
  }
}

float element(const void *data, int64_t i, int64_t type, OperandFormat format) {
  switch (type) {
  case MPT_FLOAT16:
    return rt::fromF16(static_cast<const uint16_t *>(data)[i]);
  case MPT_BFLOAT16:
    return rt::fromBF16(static_cast<const uint16_t *>(data)[i]);
  case MPT_FLOAT32: {
    float x = static_cast<const float *>(data)[i];
    return format == OperandFormat::F16 ? rt::fromF16(rt::toF16(x)) : rt::fromBF16(rt::toBF16(x));
  }
  case MPT_FLOAT8E5M2:
    return rt::fromE5M2(static_cast<const uint8_t *>(data)[i]);
  default:
    return rt::fromE4M3FN(static_cast<const uint8_t *>(data)[i]);
  }
}

/// Rows of an operand, contiguous along `inner`, with the exponents by which hardware aligns products.
struct Packed {
  std::vector<float> values;
  std::vector<int32_t> exponents;
  bool finite = true;

  Packed(const void *data, int64_t type, OperandFormat format, int64_t outer, int64_t inner, int64_t outerStride,
         int64_t innerStride)
      : values(size_t(outer * inner)), exponents(values.size()) {
    for (int64_t i = 0, at = 0; i < outer; ++i)
      for (int64_t j = 0; j < inner; ++j, ++at) {
        float x = element(data, i * outerStride + j * innerStride, type, format);
        finite &= std::isfinite(x);
        values[size_t(at)] = x;
        exponents[size_t(at)] = alignedExponent(x, format);
      }
  }
};

/// Columns whose sums are formed together, so that the compiler makes vectors of them.
constexpr int64_t lanes = 32;

/// TensorCoreSums::add for `lanes` sums at once, of finite operands. `Real` and `Whole` have bits enough for the sum of
/// a group: float and int32_t for addends of 13 bits, double and int64_t for 25.
template <typename Real, typename Whole, typename Bits>
void addGroup(const TensorCoreSums &sums, int64_t count, const float *a, const int32_t *aExponents, const float *b,
              const int32_t *bExponents, int64_t pitch, float *running) {
  constexpr int fraction = sizeof(Real) == 4 ? 23 : 52, bias = sizeof(Real) == 4 ? 127 : 1023;
  // Products that are not zero are far above; zeros must not make the scale infinite.
  constexpr int least = sizeof(Real) == 4 ? -90 : -600;
  int32_t largest[lanes];
  for (int64_t j = 0; j < lanes; ++j) {
    uint32_t bits;
    std::memcpy(&bits, &running[j], 4);
    largest[j] = std::max(std::max(int32_t(bits >> 23 & 0xff) - 127, -126), int32_t(least));
  }
  for (int64_t k = 0; k < count; ++k)
    for (int64_t j = 0; j < lanes; ++j)
      largest[j] = std::max(largest[j], aExponents[k] + bExponents[k * pitch + j]);
  Real scale[lanes], back[lanes];
  Whole total[lanes];
  for (int64_t j = 0; j < lanes; ++j) {
    Bits up = Bits(sums.addendBits - largest[j] + bias) << fraction, down = Bits(largest[j] - sums.addendBits + bias)
                                                                            << fraction;
    std::memcpy(&scale[j], &up, sizeof up);
    std::memcpy(&back[j], &down, sizeof down);
    total[j] = Whole(Real(running[j]) * scale[j]);
  }
  for (int64_t k = 0; k < count; ++k)
    for (int64_t j = 0; j < lanes; ++j)
      total[j] += Whole(Real(a[k]) * Real(b[k * pitch + j]) * scale[j]);
  // The fraction is cut off, towards zero; below 2^-126 at the bits that FP32's subnormal numbers have.
  for (int64_t j = 0; j < lanes; ++j) {
    Real exact = Real(total[j]) * back[j];
    Bits bits, unitBits, inverseBits;
    std::memcpy(&bits, &exact, sizeof bits);
    int exponent = std::max(int(bits >> fraction & (2 * bias + 1)) - bias, least == -90 ? -90 : -126);
    unitBits = Bits(exponent - sums.resultBits + bias) << fraction;
    inverseBits = Bits(sums.resultBits - exponent + bias) << fraction;
    Real unit, inverse;
    std::memcpy(&unit, &unitBits, sizeof unit);
    std::memcpy(&inverse, &inverseBits, sizeof inverse);
    float result = float(Real(Whole(exact * inverse)) * unit);
    running[j] = std::isfinite(running[j]) ? result : running[j]; // an infinite sum stays
  }
}

/// `sums` of one row of a with `lanes` columns of b.
void dot(const TensorCoreSums &sums, int64_t k, const float *a, const int32_t *aExponents, const float *b,
         const int32_t *bExponents, int64_t pitch, float *result) {
  float total[lanes] = {}, running[lanes] = {};
  const int64_t part = sums.promoted ? sums.promoted : k;
  for (int64_t first = 0; first < k; first += part) {
    for (int64_t at = first, end = std::min(k, first + part); at < end; at += sums.products) {
      auto add = sums.addendBits <= 13 ? addGroup<float, int32_t, uint32_t> : addGroup<double, int64_t, uint64_t>;
      add(sums, std::min<int64_t>(sums.products, end - at), a + at, aExponents + at, b + at * pitch,
          bExponents + at * pitch, pitch, running);
    }
    if (sums.promoted) {
      for (int64_t j = 0; j < lanes; ++j) {
        total[j] += running[j];
        running[j] = 0;
      }
    }
  }
  std::copy(sums.promoted ? total : running, (sums.promoted ? total : running) + lanes, result);
}

/// The sums of one matrix into `out`, row-major.
void multiply(const TensorCoreSums &sums, const mpt_gemm_desc &g, OperandFormat aFormat, OperandFormat bFormat,
              const void *a, const void *b, float *out) {
  const int64_t columns = (g.n + lanes - 1) / lanes * lanes;
  Packed as(a, g.a_type, aFormat, g.m, g.k, g.a_row, g.a_col);
  Packed exact(b, g.b_type, bFormat, g.k, g.n, g.b_row, g.b_col);
  if (!as.finite || !exact.finite) { // IEEE's sums; the step is skipped or lost anyway
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < g.k; ++k)
          sum += as.values[size_t(i * g.k + k)] * exact.values[size_t(k * g.n + j)];
        out[i * g.n + j] = sum;
      }
    return;
  }
  std::vector<float> values(size_t(g.k * columns));
  std::vector<int32_t> exponents(size_t(g.k * columns), -126);
  for (int64_t k = 0; k < g.k; ++k) {
    std::copy_n(&exact.values[size_t(k * g.n)], g.n, &values[size_t(k * columns)]);
    std::copy_n(&exact.exponents[size_t(k * g.n)], g.n, &exponents[size_t(k * columns)]);
  }
  float row[lanes];
  for (int64_t j = 0; j < columns; j += lanes)
    for (int64_t i = 0; i < g.m; ++i) {
      dot(sums, g.k, &as.values[size_t(i * g.k)], &as.exponents[size_t(i * g.k)], &values[size_t(j)],
          &exponents[size_t(j)], columns, row);
      std::copy_n(row, std::min(lanes, g.n - j), &out[i * g.n + j]);
    }
}

/// The kinds of operands that the check takes, two of 16 bits and two of 8.
struct Kind {
  int64_t type, bytes;
  OperandFormat format;
};
constexpr Kind kinds[] = {{MPT_FLOAT16, 2, OperandFormat::F16},
                          {MPT_BFLOAT16, 2, OperandFormat::BF16},
                          {MPT_FLOAT8E4M3FN, 1, OperandFormat::E4M3},
                          {MPT_FLOAT8E5M2, 1, OperandFormat::E5M2}};

/// Finite numbers of any bits, or all of about one size, so that sums cancel.
std::vector<uint8_t> randomOperand(const Kind &kind, int64_t count, bool alike, std::mt19937_64 &random) {
  std::vector<uint8_t> data(size_t(count * kind.bytes));
  const uint16_t exponent = kind.format == OperandFormat::F16    ? 0x3c00
                            : kind.format == OperandFormat::BF16 ? 0x3f80
                            : kind.format == OperandFormat::E4M3 ? 0x30
                                                                 : 0x38;
  const uint16_t others = kind.bytes == 2 ? 0x83ff : 0x8f;
  for (size_t i = 0; i < data.size(); i += size_t(kind.bytes))
    do {
      uint16_t bits = uint16_t(random());
      bits = alike ? uint16_t((bits & others) | exponent) : bits;
      std::memcpy(&data[i], &bits, size_t(kind.bytes));
    } while (!std::isfinite(element(&data[i], 0, kind.type, kind.format)));
  return data;
}

/// The sum by lib/Support/TensorCores: `a` is a row, `b` the column that begins there, with a pitch of `lanes`.
float referenceDot(const TensorCoreSums &sums, int64_t k, const Kind &aKind, const uint8_t *a, const Kind &bKind,
                   const uint8_t *b) {
  std::vector<double> x, y;
  for (int64_t i = 0; i < k; ++i) {
    x.push_back(element(a, i, aKind.type, aKind.format));
    y.push_back(element(b, i * lanes, bKind.type, bKind.format));
  }
  float sum = 0;
  llvm::ArrayRef<double> xs = x, ys = y;
  const size_t part = sums.promoted ? size_t(sums.promoted) : size_t(k);
  for (size_t first = 0; first < size_t(k); first += part) {
    const size_t length = std::min(part, size_t(k) - first);
    sum += float(sums.dot(0, xs.slice(first, length), aKind.format, ys.slice(first, length), bKind.format));
  }
  return sum;
}

/// How many of `lanes` random dot products differ.
int64_t differences(std::mt19937_64 &random) {
  const size_t first = random() % 4;
  const Kind &aKind = kinds[first], &bKind = kinds[first < 2 ? first : 2 + random() % 2];
  std::optional<TensorCoreSums> sums = core->sums(aKind.format, bKind.format);
  if (!sums)
    return 0;
  mpt_gemm_desc g = {};
  g.m = g.a_col = g.b_col = 1;
  g.n = g.b_row = lanes;
  g.k = g.a_row = 1 + int64_t(random() % 300);
  g.a_type = aKind.type;
  g.b_type = bKind.type;
  const bool alike = random() % 2;
  std::vector<uint8_t> a = randomOperand(aKind, g.k, alike, random),
                       b = randomOperand(bKind, g.k * lanes, alike, random);
  float found[lanes];
  multiply(*sums, g, aKind.format, bKind.format, a.data(), b.data(), found);
  int64_t different = 0;
  for (int64_t j = 0; j < lanes; ++j) {
    float expected = referenceDot(*sums, g.k, aKind, a.data(), bKind, b.data() + j * bKind.bytes);
    different += std::memcmp(&expected, &found[j], 4) != 0 && !(expected == 0 && found[j] == 0);
  }
  return different;
}

} // namespace

extern "C" {

int32_t mpt_rt_gemm(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                    const void *bias, void *d) {
  std::optional<OperandFormat> aFormat = formatOf(desc->a_type, desc->flags),
                               bFormat = formatOf(desc->b_type, desc->flags);
  std::optional<TensorCoreSums> sums = core && aFormat && bFormat ? core->sums(*aFormat, *bFormat) : std::nullopt;
  if (!sums)
    return runtimeGemm()(exec, site, desc, a, b, bias, d);
  ++gemms;
  const mpt_gemm_desc &g = *desc;
  std::vector<float> result(size_t(g.batch0 * g.batch1 * g.m * g.n)), identity(size_t(g.n * g.n));
  auto at = [](const void *data, int64_t type, int64_t offset) {
    return static_cast<const char *>(data) + offset * rt::sizeOf(type);
  };
  for (int64_t i = 0, number = 0; i < g.batch0; ++i)
    for (int64_t j = 0; j < g.batch1; ++j, ++number)
      multiply(*sums, g, *aFormat, *bFormat, at(a, g.a_type, i * g.a_batch0 + j * g.a_batch1),
               at(b, g.b_type, i * g.b_batch0 + j * g.b_batch1), &result[size_t(number * g.m * g.n)]);
  for (int64_t i = 0; i < g.n; ++i)
    identity[size_t(i * (g.n + 1))] = 1;
  mpt_gemm_desc last = g;
  last.k = g.n;
  last.a_type = last.b_type = MPT_FLOAT32;
  last.a_batch0 = g.batch1 * g.m * g.n;
  last.a_batch1 = g.m * g.n;
  last.a_row = last.b_row = g.n;
  last.a_col = last.b_col = 1;
  last.b_batch0 = last.b_batch1 = 0;
  last.flags &= ~int64_t(MPT_GEMM_READ_F16 | MPT_GEMM_READ_BF16);
  return runtimeGemm()(exec, site, &last, result.data(), identity.data(), bias, d);
}

/// Chooses the Tensor Core by its name; 0 where there is none of it.
int tensor_core_select(const char *name) {
  core = TensorCore::named(name);
  return core.has_value();
}

/// GEMMs that had a Tensor Core's sums so far.
int64_t tensor_core_gemms() { return gemms; }

/// The number of `count` random dot products that differ from lib/Support/TensorCores.
int64_t tensor_core_check(int64_t count) {
  std::mt19937_64 random(1);
  int64_t different = 0;
  for (int64_t done = 0; done < count; done += lanes)
    different += differences(random);
  return different;
}

} // extern "C"
