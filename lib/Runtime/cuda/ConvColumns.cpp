// SPDX-License-Identifier: Apache-2.0
// Convolutions as GEMMs with matrices of columns, some images at a time: the way without cuDNN.
#include "cuda/Blas.h"
#include "cuda/Convolutions.h"
#include "cuda/Gemm.h"

#include "core/Types.h"

#include <algorithm>
#include <cstring>
#include <string>

using namespace mpt::rt;

namespace {

/// The words that kernels read, in the kernels' order (lib/Target/CUDA/SupportKernels.cpp).
struct Geometry {
  int64_t total; // elements that the kernel writes
  int64_t channels, groups, groupChannels, taps;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
};

struct ColumnsSite : SiteCache {
  mpt_conv_desc desc;
  int64_t images = 0;               // of a chunk
  std::unique_ptr<Memory> geometry; // of whole chunks, of the last one, of the weights
  std::unique_ptr<SiteCache> gemms[2];
};

constexpr int64_t columnBytes = 128 << 20; // of a chunk's columns
int64_t product(const int64_t (&v)[3]) { return v[0] * v[1] * v[2]; }

mpt_status launch(CudaDevice &device, const char *kernel, int64_t dtype, std::initializer_list<void *> args) {
  return device.launchNamed("convolution", std::string("mpt_") + kernel + "_" + suffixOf(dtype), args.begin());
}

/// The GEMM of a chunk of `rows` positions.
mpt_gemm_desc gemmOf(const mpt_conv_desc &d, int64_t rows) {
  int64_t taps = product(d.kernel), depth = taps * (d.ic / d.groups), oc = d.oc / d.groups, pitch = d.groups * depth;
  mpt_gemm_desc g{};
  g.batch0 = 1;
  g.batch1 = d.groups;
  g.alpha = 1;
  if (d.kind == MPT_CONV_FORWARD) { // y = columns w^T
    g.m = rows, g.n = oc, g.k = depth;
    g.a_type = d.x_type, g.b_type = d.w_type, g.d_type = d.y_type;
    g.a_row = pitch, g.a_col = 1, g.a_batch1 = depth;
    g.b_row = 1, g.b_col = depth, g.b_batch1 = oc * depth;
    g.d_row = d.oc, g.d_col = 1, g.d_batch1 = oc;
  } else if (d.kind == MPT_CONV_BACKWARD_DATA) { // columns = y w
    g.m = rows, g.n = depth, g.k = oc;
    g.a_type = d.y_type, g.b_type = d.w_type, g.d_type = MPT_FLOAT32;
    g.a_row = d.oc, g.a_col = 1, g.a_batch1 = oc;
    g.b_row = depth, g.b_col = 1, g.b_batch1 = oc * depth;
    g.d_row = pitch, g.d_col = 1, g.d_batch1 = depth;
  } else { // w = y^T columns
    g.m = oc, g.n = depth, g.k = rows;
    g.a_type = d.y_type, g.b_type = d.x_type, g.d_type = MPT_FLOAT32;
    g.a_row = 1, g.a_col = d.oc, g.a_batch1 = oc;
    g.b_row = pitch, g.b_col = 1, g.b_batch1 = depth;
    g.d_row = depth, g.d_col = 1, g.d_batch1 = oc * depth;
  }
  return g;
}

Geometry geometryOf(const mpt_conv_desc &d, int64_t images) {
  Geometry g{};
  g.channels = d.ic;
  g.groups = d.groups;
  g.groupChannels = d.ic / d.groups;
  g.taps = product(d.kernel);
  g.total = d.kind == MPT_CONV_BACKWARD_DATA ? images * product(d.in) * d.ic : images * product(d.out) * d.ic * g.taps;
  for (int i = 0; i < 3; ++i) {
    g.in[i] = d.in[i], g.out[i] = d.out[i], g.kernel[i] = d.kernel[i];
    g.stride[i] = d.stride[i], g.dilation[i] = d.dilation[i], g.pad[i] = d.pad_low[i];
  }
  return g;
}

/// Bytes of an image's columns.
int64_t imageBytes(const mpt_conv_desc &d) {
  const int64_t element = d.kind == MPT_CONV_BACKWARD_DATA ? 4 : sizeOf(d.x_type);
  return product(d.out) * d.ic * product(d.kernel) * element;
}

int64_t weightsOf(const mpt_conv_desc &d) { return d.oc * (d.ic / d.groups) * product(d.kernel); }

/// Operands are of one type; results of that type, or as they are summed.
mpt_status checkTypes(const mpt_conv_desc &d) {
  const int64_t results[] = {d.y_type, d.x_type, d.w_type}, result = results[d.kind];
  const int64_t operand = d.kind == MPT_CONV_BACKWARD_DATA ? d.w_type : d.x_type;
  const int64_t other = d.kind == MPT_CONV_FORWARD ? d.w_type : d.y_type;
  if (suffixOf(operand) && other == operand && (result == operand || result == MPT_FLOAT32))
    return MPT_OK;
  return fail(MPT_UNSUPPORTED, "convolution: no kernel for %s with filters of %s and results of %s", nameOf(d.x_type),
              nameOf(d.w_type), nameOf(d.y_type));
}

/// The site of `d` in `slot`, made anew where the slot has another one.
mpt_status siteOf(CudaDevice &device, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d, ColumnsSite *&site) {
  site = static_cast<ColumnsSite *>(slot.get());
  if (site && memcmp(&site->desc, &d, sizeof d) == 0)
    return MPT_OK;
  auto fresh = std::make_unique<ColumnsSite>();
  fresh->desc = d;
  fresh->images = std::clamp<int64_t>(columnBytes / std::max<int64_t>(imageBytes(d), 1), 1, d.n);
  Geometry geometry[3] = {geometryOf(d, fresh->images), geometryOf(d, d.n % fresh->images), {}};
  geometry[2].total = weightsOf(d);
  if (mpt_status status = device.place("convolution", geometry, sizeof geometry, fresh->geometry))
    return status;
  site = fresh.get();
  slot = std::move(fresh);
  return MPT_OK;
}

/// A convolution's tensors and scratch; gradients of weights collect in `sums`, in FP32.
struct Buffers {
  uint8_t *x, *w, *y, *columns, *sums;
};

/// The images from `first` on that fit a chunk.
mpt_status runChunk(const mpt_exec *exec, ColumnsSite &site, const Buffers &buffers, int64_t first) {
  CudaDevice &device = deviceOf(exec);
  const mpt_conv_desc &d = site.desc;
  const bool last = d.n - first < site.images, adds = first && d.kind == MPT_CONV_BACKWARD_WEIGHTS;
  const int64_t images = std::min(site.images, d.n - first), rows = images * product(d.out);
  uint8_t *geometry = site.geometry->start + (last ? sizeof(Geometry) : 0), *columns = buffers.columns;
  uint8_t *xs = buffers.x + first * product(d.in) * d.ic * sizeOf(d.x_type);
  uint8_t *ys = buffers.y + first * product(d.out) * d.oc * sizeOf(d.y_type);
  mpt_gemm_desc g = gemmOf(d, rows);
  if (adds)
    g.flags |= MPT_GEMM_ACCUMULATE;
  // The first GEMM of a sum and the ones that add to it differ.
  std::unique_ptr<SiteCache> once, &kept = last ? once : site.gemms[adds];
  if (d.kind == MPT_CONV_BACKWARD_DATA) {
    if (mpt_status status = gemm(exec, kept, g, ys, buffers.w, nullptr, columns))
      return status;
    return launch(device, "col2im", d.x_type, {columns, xs, geometry});
  }
  if (mpt_status status = launch(device, "im2col", d.x_type, {xs, columns, geometry}))
    return status;
  if (d.kind == MPT_CONV_FORWARD)
    return gemm(exec, kept, g, columns, buffers.w, nullptr, ys);
  return gemm(exec, kept, g, ys, columns, nullptr, buffers.sums);
}

} // namespace

mpt_status mpt::rt::convByColumns(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &d,
                                  void *x, void *w, void *y) {
  CudaDevice &device = deviceOf(exec);
  if (mpt_status status = checkTypes(d))
    return status;
  ColumnsSite *site = nullptr;
  if (mpt_status status = siteOf(device, slot, d, site))
    return status;
  // Scratch: the workspace of GEMMs, the columns, then sums of weights' gradients.
  auto rounded = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const bool isWeights = d.kind == MPT_CONV_BACKWARD_WEIGHTS, narrow = isWeights && d.w_type != MPT_FLOAT32;
  const int64_t columnsAt = BlasLibrary::workspaceBytes, sumsAt = columnsAt + rounded(site->images * imageBytes(d));
  uint8_t *scratch = device.scratch(sumsAt + (isWeights ? rounded(weightsOf(d) * 4) : 0));
  if (!scratch)
    return MPT_OUT_OF_MEMORY;
  auto bytes = [](void *data) { return static_cast<uint8_t *>(data); };
  const Buffers buffers{bytes(x), bytes(w), bytes(y), scratch + columnsAt, narrow ? scratch + sumsAt : bytes(w)};
  for (int64_t first = 0; first < d.n; first += site->images)
    if (mpt_status status = runChunk(exec, *site, buffers, first))
      return status;
  if (!narrow)
    return MPT_OK;
  return launch(device, "narrow", d.w_type, {buffers.sums, w, site->geometry->start + 2 * sizeof(Geometry)});
}
