// SPDX-License-Identifier: Apache-2.0
// The packed GEMM, packing of an operand that is gathered from an image (see Gather).

namespace {

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
