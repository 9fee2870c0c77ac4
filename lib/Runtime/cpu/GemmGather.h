// SPDX-License-Identifier: Apache-2.0
// The packed GEMM, packing of an operand that is gathered from an image (see Gather).

namespace {

/// Rows [i0, i0 + rows) and columns [k0, k0 + k) of the gathered A, as packRowsA makes them.
inline void packGatherA(const Gather &gather, const float *image, int64_t i0, int64_t rows, int64_t k0, int64_t k,
                        float *out) {
  const mpt_conv_desc &c = *gather.conv;
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
  const float *from[mostGatheredTaps];
  for (int64_t i = 0; i < (rows + MR - 1) / MR * MR; ++i, out += lead) {
    if (i >= rows) {
      memset(out, 0, static_cast<size_t>(k) * sizeof(float));
      continue;
    }
    int64_t row = i0 + i, o2 = row % c.out[2], o1 = row / c.out[2] % c.out[1],
            o0 = row / c.out[2] / c.out[1] % c.out[0], n = row / c.out[2] / c.out[1] / c.out[0], t = 0;
    bool padded = false;
    for (int64_t t0 = 0; t0 < c.kernel[0]; ++t0)
      for (int64_t t1 = 0; t1 < c.kernel[1]; ++t1)
        for (int64_t t2 = 0; t2 < c.kernel[2]; ++t2, ++t) {
          int64_t x0 = o0 * c.stride[0] - c.pad_low[0] + t0 * c.dilation[0],
                  x1 = o1 * c.stride[1] - c.pad_low[1] + t1 * c.dilation[1],
                  x2 = o2 * c.stride[2] - c.pad_low[2] + t2 * c.dilation[2];
          bool inside = x0 >= 0 && x0 < c.in[0] && x1 >= 0 && x1 < c.in[1] && x2 >= 0 && x2 < c.in[2];
          from[t] = inside ? image + (((n * c.in[0] + x0) * c.in[1] + x1) * c.in[2] + x2) * c.ic : nullptr;
          padded |= !inside;
        }
    int64_t channel = k0 / taps, tap = k0 % taps;
    for (int64_t p = 0; p < k;) {
      if (taps == 9 && tap == 0 && !padded)
        for (; p + 9 <= k; p += 9, ++channel)
          for (int64_t q = 0; q < 9; ++q)
            out[p + q] = from[q][channel];
      for (; tap < taps && p < k; ++tap, ++p)
        out[p] = from[tap] ? from[tap][channel] : 0;
      tap = 0;
      ++channel;
    }
  }
}

/// Rows [k0, k0 + k) and columns [j0, j0 + cols) of the gathered matrix, in panels as packRowsB makes them.
template <typename T>
void packGatherB(const Gather &gather, const void *image, int64_t k0, int64_t k, int64_t j0, int64_t cols, float *out) {
  const mpt_conv_desc &c = *gather.conv;
  for (int64_t j = 0; j < cols;) {
    int64_t tap = (j0 + j) / gather.channels, channel = (j0 + j) % gather.channels;
    int64_t run = gather.channels - channel < cols - j ? gather.channels - channel : cols - j;
    int64_t t2 = tap % c.kernel[2], t1 = tap / c.kernel[2] % c.kernel[1], t0 = tap / c.kernel[2] / c.kernel[1];
    int64_t o2 = k0 % c.out[2], o1 = k0 / c.out[2] % c.out[1], o0 = k0 / c.out[2] / c.out[1] % c.out[0],
            n = k0 / c.out[2] / c.out[1] / c.out[0];
    for (int64_t p = 0; p < k; ++p) {
      int64_t i0 = o0 * c.stride[0] - c.pad_low[0] + t0 * c.dilation[0];
      int64_t i1 = o1 * c.stride[1] - c.pad_low[1] + t1 * c.dilation[1];
      int64_t i2 = o2 * c.stride[2] - c.pad_low[2] + t2 * c.dilation[2];
      bool inside = i0 >= 0 && i0 < c.in[0] && i1 >= 0 && i1 < c.in[1] && i2 >= 0 && i2 < c.in[2];
      const T *in = static_cast<const T *>(image) +
                    (inside ? (((n * c.in[0] + i0) * c.in[1] + i1) * c.in[2] + i2) * gather.channels + channel : 0);
      float *to = out + j / NR * (k * NR) + p * NR;
      for (int64_t q = 0; q < run; q += NR, to += k * NR) {
        (inside ? loadAs(in + q) : Vec::zero()).store(to);
        (inside ? loadAs(in + q + W) : Vec::zero()).store(to + W);
      }
      if (++o2 == c.out[2]) {
        o2 = 0;
        if (++o1 == c.out[1]) {
          o1 = 0;
          if (++o0 == c.out[0]) {
            o0 = 0;
            ++n;
          }
        }
      }
    }
    j += run;
  }
}

} // namespace
