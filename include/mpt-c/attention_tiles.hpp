// SPDX-License-Identifier: Apache-2.0
// Kernels of attention in tiles, for dropout and for heads that share keys. The compiler makes them
// (lib/Target/CUDA/AttentionTiles.cpp), the runtime launches them (lib/Runtime/cuda/AttentionTiles.cpp).
#ifndef MPT_C_ATTENTION_TILES_HPP
#define MPT_C_ATTENTION_TILES_HPP

#include "mpt-c/abi.h"

#include <cstdint>
#include <string>

namespace mpt::attention {

/// Results that a kernel makes: o and its statistics; dq; dk and dv.
enum class Kind { Forward, Queries, Keys };
inline constexpr Kind kinds[] = {Kind::Forward, Kind::Queries, Kind::Keys};

/// A block of `threads` makes `rows` of the result, tile by tile, and sums over chunks of `chunk` keys or queries.
inline constexpr int64_t threads = 128, chunk = 32, gridBlocks = 1056;
inline constexpr int64_t rowsOf(Kind kind) { return kind == Kind::Forward ? 64 : 32; }
/// Depths are padded with zeros, in shared memory alone.
inline constexpr int64_t paddedDepth(int64_t depth) { return (depth + 31) / 32 * 32; }
inline constexpr int64_t mostDepth = 128;

/// The words that describe one attention to a kernel: numbers of 64 bits. Strides count elements.
enum Word : int64_t {
  Tiles,    // of all batches and heads
  RowTiles, // of a head
  Heads,    // of queries
  KeyHeads,
  Queries,
  Keys,
  Depth,
  ValueDepth,
  Causal,
  Scale,     // FP32, as bits
  Threshold, // a probability is kept where its random word is no less
  KeptScale, // 1 / (1 - ratio), FP32, as bits
  Stream,
  Q, // each of batch, head and row
  K = Q + 3,
  V = K + 3,
  O = V + 3,
  GradientO = O + 3,
  GradientQ = GradientO + 3,
  GradientK = GradientQ + 3,
  GradientV = GradientK + 3,
  Bias = GradientV + 3, // of batch, head, query and key; 0 where it repeats
  Words = Bias + 4
};

/// A kernel's code: all that it depends on.
struct Tile {
  Kind kind;
  int64_t type, biasType; // mpt_dtype; biasType 0: no bias
  int64_t depth, valueDepth;
  bool drops;
  bool fours; // with dropout: counts of keys are multiples of 4, so that four neighbours share a random counter

  /// Arguments: q, k, v, the bias and the key where there are such, then o and the statistics; backward d_o, the
  /// statistics and the sums of o d_o by row, then dq, or dk and dv; at last the words.
  std::string name() const {
    static const char *const names[] = {"forward", "queries", "keys"};
    auto text = [](int64_t t) { return t == MPT_FLOAT32 ? "f32" : t == MPT_FLOAT16 ? "f16" : "bf16"; };
    return std::string("mpt_attention_tiles_") + names[static_cast<int>(kind)] + "_" + text(type) + "_d" +
           std::to_string(paddedDepth(depth)) + "v" + std::to_string(paddedDepth(valueDepth)) +
           (biasType ? std::string("_bias_") + text(biasType) : "") + (drops ? fours ? "_drop4" : "_drop" : "");
  }
};

inline Tile tileOf(Kind kind, const mpt_attention_desc &d, bool drops) {
  return {kind, d.type, d.bias_type, d.depth, d.value_depth, drops, drops && d.keys % 4 == 0};
}

/// Whether the kernels take it: heads that cuDNN or GEMMs do not take otherwise, of depths in eights.
inline bool wantsTiles(const mpt_attention_desc &d, bool drops) {
  return (drops || d.heads != d.kv_heads) && d.depth % 8 == 0 && d.value_depth % 8 == 0 && d.depth <= mostDepth &&
         d.value_depth <= mostDepth;
}

} // namespace mpt::attention

#endif
