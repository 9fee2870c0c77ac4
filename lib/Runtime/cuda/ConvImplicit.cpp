// SPDX-License-Identifier: Apache-2.0
// Convolutions by the implicit-GEMM kernels that emitted libraries carry: the words that describe one, and launches.
#include "cuda/Convolutions.h"
#include "mpt-c/conv_words.hpp"

#include "core/Types.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

using namespace mpt::rt;
using namespace mpt;

namespace {

struct ImplicitSite : SiteCache {
  mpt_conv_desc desc;
  int64_t kernel = -1, sum = -1;
  int64_t slices = 1, results = 0;
  std::unique_ptr<Memory> words, sumWords;
};

constexpr int64_t mostElements = (int64_t(1) << 31) - 8192; // of a tensor: indices have 32 bits
constexpr int64_t sliceBytes = 64 << 20;                    // of all slices of a gradient of weights
constexpr int64_t leastChunks = 8;                          // of a slice
int64_t product(const int64_t (&v)[3]) { return v[0] * v[1] * v[2]; }
int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool isWeights(const mpt_conv_desc &d) { return d.kind == MPT_CONV_BACKWARD_WEIGHTS; }
int64_t operandType(const mpt_conv_desc &d) { return d.kind == MPT_CONV_BACKWARD_DATA ? d.w_type : d.x_type; }

/// The number of the kernel for `d`, -1 where there is none.
int64_t findKernel(const CudaDevice &device, const mpt_conv_desc &d, std::initializer_list<const void *> pointers) {
  const int64_t operand = operandType(d), other = d.kind == MPT_CONV_FORWARD ? d.w_type : d.y_type;
  const int64_t result = d.kind == MPT_CONV_FORWARD ? d.y_type : d.kind == MPT_CONV_BACKWARD_DATA ? d.x_type : d.w_type;
  if (!suffixOf(operand) || other != operand || !suffixOf(result))
    return -1;
  const int64_t weights = d.oc * (d.ic / d.groups) * product(d.kernel);
  for (int64_t elements : {d.n * product(d.in) * d.ic, d.n * product(d.out) * d.oc, weights})
    if (elements >= mostElements)
      return -1;
  const char *kinds[] = {"forward", "data", "weights"};
  std::string name = std::string("mpt_conv_") + kinds[d.kind] + "_" + suffixOf(operand) + "_" +
                     (isWeights(d) ? "f32" : suffixOf(result));
  const int64_t run = conv::vectorWidth(operand == MPT_FLOAT32);
  bool vectors = d.ic / d.groups % run == 0 && d.oc / d.groups % run == 0;
  for (const void *pointer : pointers)
    vectors = vectors && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  return device.kernelNumber((name + (vectors ? "_v" : "_s")).c_str());
}

/// The words that a kernel reads, in the making.
struct Words {
  explicit Words(int64_t images) : positions(images) {}

  void set(int64_t at, int64_t value) { words[static_cast<size_t>(at)] = static_cast<int32_t>(value); }
  void setDivisor(int64_t multiply, int64_t shift, int64_t n) {
    conv::Divisor divisor = conv::divisorOf(std::max<int64_t>(n, 1));
    set(multiply, divisor.multiply);
    set(shift, divisor.shift);
  }

  /// Spatial dimension `i`, with its table of taps by residue.
  void setDimension(const mpt_conv_desc &d, int i) {
    const bool data = d.kind == MPT_CONV_BACKWARD_DATA;
    const int64_t s = d.stride[i], common = std::gcd(s, d.dilation[i]), residues = data ? s : 1;
    const int64_t grid = data ? ceilDiv(d.in[i], s) : d.out[i], step = data ? s / common : 1;
    positions *= grid;
    classes *= residues;
    set(conv::Grid + i, grid);
    setDivisor(conv::GridMultiply + i, conv::GridShift + i, grid);
    set(conv::Source + i, data ? d.out[i] : d.in[i]);
    set(conv::Target + i, data ? d.in[i] : d.out[i]);
    set(conv::GridScale + i, data ? 1 : s);
    set(conv::TargetScale + i, data ? s : 1);
    set(conv::Reach + i, data ? -(d.dilation[i] / common) : d.dilation[i]);
    set(conv::TapStep + i, step);
    set(conv::Kernel + i, d.kernel[i]);
    set(conv::Residues + i, residues);
    set(conv::TableAt + i, static_cast<int64_t>(words.size()));
    for (int64_t r = 0; r < residues; ++r) {
      // The taps of which reach this residue: every step-th from the first.
      int64_t first = 0;
      while (data && first < d.kernel[i] && (r + d.pad_low[i] - first * d.dilation[i]) % s != 0)
        ++first;
      const int64_t entry = static_cast<int64_t>(words.size());
      const int64_t count = first < d.kernel[i] ? (d.kernel[i] - 1 - first) / step + 1 : 0;
      words.resize(words.size() + conv::EntryWords);
      set(entry + conv::Base, data ? (r + d.pad_low[i] - first * d.dilation[i]) / s : -d.pad_low[i]);
      set(entry + conv::First, first);
      set(entry + conv::Count, count);
      setDivisor(entry + conv::CountMultiply, entry + conv::CountShift, count);
    }
  }

  std::vector<int32_t> words = std::vector<int32_t>(conv::Fixed);
  int64_t positions, classes = 1;
};

/// The words that the kernel reads; sets the slices of `site`.
std::vector<int32_t> wordsOf(const mpt_conv_desc &d, ImplicitSite &site) {
  const bool data = d.kind == MPT_CONV_BACKWARD_DATA, weights = isWeights(d);
  const conv::TileShape tile = conv::tileShape(weights, operandType(d) == MPT_FLOAT32);
  Words out(d.n);
  for (int i = 0; i < 3; ++i)
    out.setDimension(d, i);
  const int64_t ic = d.ic / d.groups, oc = d.oc / d.groups, taps = product(d.kernel);
  const int64_t channels = data ? oc : ic, rows = weights ? oc : out.positions,
                columns = weights ? taps * ic
                          : data  ? ic
                                  : oc;
  const int64_t tiles = ceilDiv(rows, tile.rows) * ceilDiv(columns, tile.columns) * d.groups;
  if (weights) {
    // Slices enough for all blocks, if they are not too short.
    const int64_t chunks = ceilDiv(out.positions, tile.depth), most = sliceBytes / 4 / (d.oc * taps * ic);
    int64_t slices =
        std::clamp<int64_t>(std::min(conv::gridBlocks / tiles, chunks / leastChunks), 1, std::max<int64_t>(most, 1));
    const int64_t length = ceilDiv(chunks, slices);
    site.slices = out.classes = ceilDiv(chunks, length);
    out.set(conv::SliceChunks, length);
    out.set(conv::Positions, out.positions);
  }
  out.set(conv::Tiles, tiles * out.classes);
  out.set(conv::RowTiles, ceilDiv(rows, tile.rows));
  out.set(conv::ColumnTiles, ceilDiv(columns, tile.columns));
  out.set(conv::Classes, out.classes);
  out.set(conv::Rows, rows);
  out.set(conv::Columns, columns);
  out.set(conv::Channels, channels);
  out.setDivisor(conv::ChannelsMultiply, conv::ChannelsShift, channels);
  out.set(conv::SourceChannels, data ? d.oc : d.ic);
  out.set(conv::TargetChannels, data ? d.ic : d.oc);
  out.set(conv::Taps, taps);
  return std::move(out.words);
}

mpt_status prepare(CudaDevice &device, ImplicitSite &site, int64_t kernel) {
  const mpt_conv_desc &d = site.desc;
  site.kernel = kernel;
  std::vector<int32_t> words = wordsOf(d, site);
  if (mpt_status status = device.place("convolution", words.data(), words.size() * sizeof(int32_t), site.words))
    return status;
  if (!isWeights(d) || (d.w_type == MPT_FLOAT32 && site.slices == 1))
    return MPT_OK;
  site.sum = device.kernelNumber((std::string("mpt_slices_") + suffixOf(d.w_type)).c_str());
  site.results = d.oc * (d.ic / d.groups) * product(d.kernel);
  const int64_t sums[] = {site.results, site.slices};
  return device.place("convolution", sums, sizeof sums, site.sumWords);
}

} // namespace

bool mpt::rt::hasImplicitKernel(const CudaDevice &device, const mpt_conv_desc &d, const void *x, const void *w,
                                const void *y) {
  return findKernel(device, d, {x, w, y}) >= 0;
}

mpt_status mpt::rt::convImplicit(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d,
                                 void *x, void *w, void *y) {
  CudaDevice &device = deviceOf(exec);
  auto *site = static_cast<ImplicitSite *>(slot.get());
  if (!site || memcmp(&site->desc, &d, sizeof d) != 0) {
    auto fresh = std::make_unique<ImplicitSite>();
    fresh->desc = d;
    if (mpt_status status = prepare(device, *fresh, findKernel(device, d, {x, w, y})))
      return status;
    site = fresh.get();
    slot = std::move(fresh);
  }
  uint8_t *words = site->words->start;
  if (!isWeights(d)) {
    void *forward[] = {x, w, y, words}, *data[] = {y, w, x, words};
    return device.launch(site->kernel, d.kind == MPT_CONV_FORWARD ? forward : data);
  }
  void *sums = w;
  if (site->sumWords) {
    sums = device.scratch(site->slices * site->results * 4);
    if (!sums)
      return MPT_OUT_OF_MEMORY;
  }
  void *weights[] = {y, x, sums, words};
  mpt_status status = device.launch(site->kernel, weights);
  if (status || !site->sumWords)
    return status;
  void *slices[] = {sums, w, site->sumWords->start};
  return device.launch(site->sum, slices);
}
