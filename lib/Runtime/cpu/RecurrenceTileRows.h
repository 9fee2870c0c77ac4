// SPDX-License-Identifier: Apache-2.0
// Shared by register tiles: chunks of the operand's rows, and one function a number of rows.
#ifndef MPT_RUNTIME_CPU_RECURRENCETILEROWS_H
#define MPT_RUNTIME_CPU_RECURRENCETILEROWS_H

#include <cstdint>

namespace {

/// How many values of a row lie side by side in an operand of products: a cache line. The lines of all rows follow one
/// another, so that rows of any pitch share the sets of a cache evenly.
template <typename Element> constexpr int64_t chunkOf = 64 / static_cast<int64_t>(sizeof(Element));

/// `Tile::multiplyRows` for `count` rows, from 1 to `Tile::rows`: their sums stay in registers.
template <typename Tile, int R = Tile::rows> typename Tile::MultiplyRows *multiplyOf(int64_t count) {
  if constexpr (R > 1)
    if (count != R)
      return multiplyOf<Tile, R - 1>(count);
  return Tile::template multiplyRows<R>;
}

} // namespace

#endif
