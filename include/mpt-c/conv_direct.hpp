// SPDX-License-Identifier: Apache-2.0
// Direct kernels of depthwise convolutions: one a shape. The compiler makes them (lib/Target/CUDA/DepthwiseKernels.cpp),
// the runtime finds them by name (lib/Runtime/cuda/ConvDirect.cpp); both ask here whether one exists.
#ifndef MPT_C_CONV_DIRECT_HPP
#define MPT_C_CONV_DIRECT_HPP

#include "mpt-c/abi.h"

#include <algorithm>
#include <cstdint>
#include <string>

namespace mpt::conv {

/// How a kernel shares its work. A block of `across` x `down` threads takes `across` vectors of channels; each thread
/// makes runs of neighbouring positions along the last dimension, every so many-th of them.
struct DirectShape {
  int64_t vector;    ///< channels of a thread
  int64_t across;    ///< threads beside each other over channels
  int64_t down;      ///< threads below each other over runs
  int64_t tiles;     ///< blocks beside each other over channels
  int64_t rows;      ///< backward weights: blocks for each row of taps; else 1
  int64_t slices;    ///< blocks below each other over runs
  int64_t run;       ///< positions of a run
  int64_t runs;      ///< of all images
  int64_t positions; ///< along the last dimension
  int64_t threads() const { return across * down; }
  int64_t blocks() const { return tiles * rows * slices; }
};

inline int64_t directOperand(const mpt_conv_desc &d) {
  return d.kind == MPT_CONV_BACKWARD_DATA ? d.w_type : d.x_type;
}
inline int64_t directResult(const mpt_conv_desc &d) {
  return d.kind == MPT_CONV_FORWARD ? d.y_type : d.kind == MPT_CONV_BACKWARD_DATA ? d.x_type : d.w_type;
}

/// Whether there is a kernel: one filter a channel, operands of one type of 16 or 32 bits, results of it or FP32, and
/// no more taps than a thread's code unrolls.
inline bool hasDirect(const mpt_conv_desc &d) {
  constexpr int64_t mostTaps = 64, mostElements = (int64_t(1) << 31) - 8192;
  const int64_t operand = directOperand(d), other = d.kind == MPT_CONV_FORWARD ? d.w_type : d.y_type;
  const int64_t result = directResult(d);
  auto isKnown = [](int64_t type) { return type == MPT_FLOAT32 || type == MPT_FLOAT16 || type == MPT_BFLOAT16; };
  int64_t taps = 1, in = d.n * d.ic, out = d.n * d.oc;
  for (int i = 0; i < 3; ++i) {
    taps *= d.kernel[i];
    in *= d.in[i];
    out *= d.out[i];
    if (d.stride[i] > 4)
      return false;
  }
  return d.groups > 1 && d.groups == d.ic && d.groups == d.oc && !d.bias_type && !d.flags && isKnown(operand) &&
         other == operand && isKnown(result) && (result == operand || result == MPT_FLOAT32) && taps <= mostTaps &&
         in < mostElements && out < mostElements && in > 0 && out > 0;
}

inline DirectShape directShape(const mpt_conv_desc &d) {
  constexpr int64_t mostThreads = 256, warp = 32, weightBytes = 16384, enoughBlocks = 1056, mostSums = 72;
  const bool weights = d.kind == MPT_CONV_BACKWARD_WEIGHTS, data = d.kind == MPT_CONV_BACKWARD_DATA;
  const int64_t taps = d.kernel[0] * d.kernel[1] * d.kernel[2];
  DirectShape s{};
  s.vector = directOperand(d) == MPT_FLOAT32 ? 4 : 8;
  while (d.ic % s.vector != 0 || (weights && s.vector > 1 && d.kernel[2] * s.vector > mostSums))
    s.vector /= 2;
  // The most threads that divide the vectors and whose filters fit shared memory.
  const int64_t vectors = d.ic / s.vector;
  s.across = 1;
  for (int64_t n = 2; n <= std::min(vectors, warp); ++n)
    if (vectors % n == 0 && n * s.vector * taps * 4 <= weightBytes)
      s.across = n;
  s.down = mostThreads / s.across;
  s.tiles = vectors / s.across;
  s.rows = weights ? d.kernel[0] * d.kernel[1] : 1;
  // Backward data, a run holds whole strides, so that the same taps reach the same places of every run.
  const int64_t *made = data ? d.in : d.out;
  s.run = data ? (4 + d.stride[2] - 1) / d.stride[2] * d.stride[2] : 4;
  s.positions = (made[2] + s.run - 1) / s.run;
  s.runs = d.n * made[0] * made[1] * s.positions;
  s.slices = std::max<int64_t>(1, std::min((s.runs + s.down - 1) / s.down, enoughBlocks / (s.tiles * s.rows)));
  return s;
}

/// The kernel's name: all that its code depends on.
inline std::string directName(const mpt_conv_desc &d) {
  static const char *const kinds[] = {"forward", "data", "weights"};
  auto type = [](int64_t t) { return t == MPT_FLOAT32 ? "f32" : t == MPT_FLOAT16 ? "f16" : "bf16"; };
  std::string name = std::string("mpt_depthwise_") + kinds[d.kind] + "_" + type(directOperand(d)) + "_" +
                     (d.kind == MPT_CONV_BACKWARD_WEIGHTS ? "f32" : type(directResult(d))) + "_n" +
                     std::to_string(d.n) + "_c" + std::to_string(d.ic);
  auto add = [&](const char *what, const int64_t (&values)[3]) {
    name += std::string("_") + what;
    for (int i = 0; i < 3; ++i)
      name += (i ? "x" : "") + std::to_string(values[i]);
  };
  add("i", d.in), add("o", d.out), add("k", d.kernel), add("s", d.stride), add("d", d.dilation), add("p", d.pad_low);
  return name;
}

} // namespace mpt::conv

#endif
