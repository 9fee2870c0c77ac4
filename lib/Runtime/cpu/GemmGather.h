// SPDX-License-Identifier: Apache-2.0
// The packed GEMM, packing of an operand that is gathered from an image (see Gather).

namespace {

/// A place in three dimensions, from the index of an image's or a kernel's positions, the last one innermost.
struct PlaceOf {
  PlaceOf(int64_t index, const int64_t (&extent)[3])
      : at{index / extent[2] / extent[1] % extent[0], index / extent[2] % extent[1], index % extent[2]},
        image(index / extent[2] / extent[1] / extent[0]) {}
  void next(const int64_t (&extent)[3]) {
    for (int i = 3; i-- > 0; at[i] = 0)
      if (++at[i] < extent[i])
        return;
    ++image;
  }
  int64_t at[3], image;
};

/// The channels that kernel position `tap` takes for output position `out`; null outside the image.
template <typename T>
const T *channelsAt(const Gather &gather, const void *image, const PlaceOf &out, const PlaceOf &tap) {
  const mpt_conv_desc &c = *gather.conv;
  int64_t place = out.image;
  for (int i = 0; i < 3; ++i) {
    const int64_t at = out.at[i] * c.stride[i] - c.pad_low[i] + tap.at[i] * c.dilation[i];
    if (at < 0 || at >= c.in[i])
      return nullptr;
    place = place * c.in[i] + at;
  }
  return static_cast<const T *>(image) + place * gather.channels;
}

/// Rows [i0, i0 + rows) and columns [k0, k0 + k) of the gathered matrix, as packRowsA makes them of a matrix.
template <typename T>
void packGatherA(const Gather &gather, const void *image, int64_t i0, int64_t rows, int64_t k0, int64_t k, float *out) {
  const mpt_conv_desc &c = *gather.conv;
  for (int64_t p = 0, run; p < k; p += run) {
    const int64_t channel = (k0 + p) % gather.channels;
    run = gather.channels - channel < k - p ? gather.channels - channel : k - p;
    const PlaceOf tap((k0 + p) / gather.channels, c.kernel);
    PlaceOf at(i0, c.out);
    for (int64_t i = 0; i < (rows + MR - 1) / MR * MR; ++i, at.next(c.out)) {
      const T *from = i < rows ? channelsAt<T>(gather, image, at, tap) : nullptr;
      packRun(from ? from + channel : nullptr, run, i, p, lanesOf(k), out);
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
    const PlaceOf place(tap, c.kernel);
    PlaceOf at(k0, c.out);
    for (int64_t p = 0; p < k; ++p, at.next(c.out)) {
      const T *in = channelsAt<T>(gather, image, at, place);
      float *to = out + j / NR * (k * NR) + p * NR;
      for (int64_t q = 0; q < run; q += NR, to += k * NR) {
        (in ? loadAs(in + channel + q) : Vec::zero()).store(to);
        (in ? loadAs(in + channel + q + W) : Vec::zero()).store(to + W);
      }
    }
    j += run;
  }
}

} // namespace
