// SPDX-License-Identifier: Apache-2.0
// The words that describe one convolution to kernels of implicit-GEMM convolutions: numbers of 32 bits. The compiler
// makes the kernels (lib/Target/CUDA/ConvKernels.cpp), the runtime the words (lib/Runtime/cuda/ConvImplicit.cpp).
#ifndef MPT_C_CONV_WORDS_HPP
#define MPT_C_CONV_WORDS_HPP

#include <cstdint>

namespace mpt::conv {

/// Tiles of `rows` x `columns` results, made of chunks of `depth` terms by blocks of `threads`.
struct TileShape {
  int64_t rows, columns, depth;
};
inline constexpr int64_t threads = 128, gridBlocks = 528;
inline constexpr TileShape tileShape(bool weights, bool single) {
  return {weights ? 64 : 128, weights ? 128 : 64, single ? 16 : 32};
}
/// Channels that one access reads where both counts of channels are multiples of it.
inline constexpr int64_t vectorWidth(bool single) { return single ? 4 : 8; }

/// A position of the matrix's rows has coordinates q below `Grid` in each dimension, and reads the operand `Source` at
/// q
/// * GridScale + base + j * Reach for the j-th of its taps. Forward, all positions have all taps. Backward data, the
/// positions q of one residue r modulo the strides make the gradient at q * TargetScale + r, from the taps first + j *
/// TapStep that reach it. Backward weights, rows are channels of y, columns are taps and channels of x, and the terms
/// are the positions of y.
enum Word : int64_t {
  Tiles,       // all tiles
  RowTiles,    // tiles above each other
  ColumnTiles, // beside each other
  Classes,     // residues of all dimensions; slices of the terms
  Rows,        // of a class
  Columns,
  Channels,         // of a group that are summed over; backward weights: of a group of x
  ChannelsMultiply, // to divide by Channels
  ChannelsShift,
  SourceChannels, // from one position of Source to the next
  TargetChannels, // likewise of the result; backward weights: of y
  Taps,
  SliceChunks, // chunks of a slice of terms
  Positions,   // terms of backward weights
  Grid,        // 3
  Source = Grid + 3,
  Target = Source + 3,
  GridScale = Target + 3,
  TargetScale = GridScale + 3,
  Reach = TargetScale + 3,
  TapStep = Reach + 3,
  Kernel = TapStep + 3,
  Residues = Kernel + 3,
  GridMultiply = Residues + 3, // to divide by Grid
  GridShift = GridMultiply + 3,
  TableAt = GridShift + 3, // where a dimension's table begins: an entry a residue
  Fixed = TableAt + 3
};
enum Entry : int64_t { Base, First, Count, CountMultiply, CountShift, EntryWords };

/// n / divisor = n * multiply >> shift, for n below 2^31.
struct Divisor {
  uint32_t multiply, shift;
};
inline Divisor divisorOf(int64_t n) {
  uint32_t shift = 0;
  while ((int64_t(1) << shift) < n)
    ++shift;
  return {static_cast<uint32_t>((uint64_t(1) << (31 + shift)) / static_cast<uint64_t>(n) + 1), 31 + shift};
}

} // namespace mpt::conv

#endif
