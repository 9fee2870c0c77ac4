// SPDX-License-Identifier: Apache-2.0
// Recurrences with BF16 weights on processors with matrix tiles (AMX): sums of 32 rows by 32 columns stay in tiles.
#include "cpu/Amx.h"
#include "cpu/Recurrence.h"
#include "cpu/RecurrenceTileRows.h"

#include <immintrin.h>

namespace {

struct Tile {
  using Element = uint16_t;
  static constexpr int columns = 32, rows = 32;
  static constexpr int64_t pair = 2, depthUnit = 32, chunk = chunkOf<Element>;

  static void multiply(int64_t count, int64_t depth, const uint16_t *a, int64_t stride, const uint16_t *panel, float *c,
                       bool accumulate) {
    if (configured != count) {
      auto upper = static_cast<uint8_t>(count < 16 ? count : 16);
      mpt::rt::configureTiles(upper, static_cast<uint8_t>(count - upper));
      configured = count;
    }
    count > 16 ? multiplyTwo(depth, a, stride, panel, c, accumulate)
               : multiplyOne(depth, a, stride, panel, c, accumulate);
  }

  /// Leaves the tiles, which a thread that switches would have to save.
  static void finish() {
    _tile_release();
    configured = 0;
  }

private:
  static thread_local int64_t configured; ///< the rows that tiles have now; 0 where none

  static constexpr size_t sumStride = columns * sizeof(float), panelStride = columns * pair * sizeof(uint16_t),
                          rowStride = chunk * sizeof(uint16_t);

  static void multiplyOne(int64_t depth, const uint16_t *a, int64_t stride, const uint16_t *panel, float *c,
                          bool accumulate) {
    if (accumulate) {
      _tile_loadd(0, c, sumStride);
      _tile_loadd(1, c + 16, sumStride);
    } else {
      _tile_zero(0);
      _tile_zero(1);
    }
    for (int64_t k = 0; k < depth; k += chunk, a += stride) {
      _tile_loadd(4, a, rowStride);
      _tile_loadd(6, panel + k * columns, panelStride);
      _tile_loadd(7, panel + k * columns + 32, panelStride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, c, sumStride);
    _tile_stored(1, c + 16, sumStride);
  }

  static void multiplyTwo(int64_t depth, const uint16_t *a, int64_t stride, const uint16_t *panel, float *c,
                          bool accumulate) {
    float *lower = c + 16 * columns;
    if (accumulate) {
      _tile_loadd(0, c, sumStride);
      _tile_loadd(1, c + 16, sumStride);
      _tile_loadd(2, lower, sumStride);
      _tile_loadd(3, lower + 16, sumStride);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t k = 0; k < depth; k += chunk, a += stride) {
      _tile_loadd(4, a, rowStride);
      _tile_loadd(6, panel + k * columns, panelStride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, panel + k * columns + 32, panelStride);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + 16 * chunk, rowStride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, sumStride);
    _tile_stored(1, c + 16, sumStride);
    _tile_stored(2, lower, sumStride);
    _tile_stored(3, lower + 16, sumStride);
  }
};

thread_local int64_t Tile::configured = 0;

} // namespace

#include "cpu/RecurrenceSteps.h"

namespace mpt::rt {

const RecurrenceKernels recurrenceAmx{
    "amx", NR, true, Tile::depthUnit, packBlocks, runBlocks<ForwardStep>, runBlocks<BackwardStep>};

} // namespace mpt::rt
