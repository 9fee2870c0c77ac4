// SPDX-License-Identifier: Apache-2.0
// Recurrences with BF16 weights on processors with matrix tiles (AMX): sums of 32 rows by 32 columns stay in tiles.
#include "cpu/Recurrence.h"
#include "cpu/RecurrenceTileRows.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

struct Tile {
  using Element = uint16_t;
  static constexpr int columns = 32, rows = 32;
  static constexpr int64_t pair = 2, depthUnit = 32, chunk = chunkOf<Element>;

  /// The layout of tile registers, as the processor takes it.
  struct alignas(64) Config {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  };

  /// Sums in tiles 0 to 3, rows of a in 4 and 5, columns of the panel in 6 and 7.
  static void configure(int64_t count) {
    Config config;
    auto upper = static_cast<uint8_t>(count < 16 ? count : 16), lower = static_cast<uint8_t>(count - upper);
    const uint8_t rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int i = 0; i < 8; ++i)
      if (rows[i]) {
        config.rows[i] = rows[i];
        config.bytes[i] = 64;
      }
    _tile_loadconfig(&config);
  }

  static void multiply(int64_t count, int64_t depth, const uint16_t *a, int64_t stride, const uint16_t *panel, float *c,
                       bool accumulate) {
    if (configured != count) {
      configure(count);
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

bool hasAmx() {
  static const bool has = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (bf16 | tile)) != (bf16 | tile))
      return false;
    // The system saves tiles of processes that ask for it.
    constexpr long request = 0x1023, tileData = 18;
    return syscall(SYS_arch_prctl, request, tileData) == 0;
  }();
  return has;
}

} // namespace mpt::rt
