// SPDX-License-Identifier: Apache-2.0
// Matrix tiles (AMX). Files that configure them are compiled for processors that have them.
#ifndef MPT_RUNTIME_CPU_AMX_H
#define MPT_RUNTIME_CPU_AMX_H

#include <cstdint>

#if defined(__AMX_TILE__)
#include <immintrin.h>
#endif

namespace mpt::rt {

/// Whether this processor has tiles for BF16, and the system saves them.
bool hasAmx();

#if defined(__AMX_TILE__)
/// Sums in tiles 0 to 3, `upper` rows of an operand in tile 4 and `lower` rows in tile 5, the other operand in 6 and 7.
inline void configureTiles(uint8_t upper, uint8_t lower) {
  struct alignas(64) { // as the processor takes it
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  const uint8_t rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
  for (int i = 0; i < 8; ++i)
    if (rows[i]) {
      config.rows[i] = rows[i];
      config.bytes[i] = 64;
    }
  _tile_loadconfig(&config);
}
#endif

} // namespace mpt::rt

#endif
