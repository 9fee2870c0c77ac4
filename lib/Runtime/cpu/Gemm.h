// SPDX-License-Identifier: Apache-2.0
// Inside the GEMM: one task (a rectangle of one batch element) and the kernels that each instruction set provides.
#ifndef MPT_RUNTIME_CPU_GEMM_H
#define MPT_RUNTIME_CPU_GEMM_H

#include "mpt-c/abi.h"

namespace mpt::rt {

/// An operand that is gathered from an image: row p is output position p of a convolution, column j is input channel
/// j % channels at kernel position j / channels. Channels are a multiple of the kernels' tile width; of A, which tiles
/// alone take, of 32.
struct Gather {
  int64_t channels;
  const mpt_conv_desc *conv;
  bool isA = false; // else B
};

/// A kernel position of windows: how far it lies behind the first window's begin, and where its filters begin.
struct WindowTap {
  int64_t image, filter;
};

/// Sums over windows of an image: kernel positions ascending, then channels, one fused multiply-add each or in two
/// chains. Windows have a place in four dimensions, the first of which counts images. The lanes of a vector are columns
/// of the result, and the image has its channels last; or they are windows of a line (`lines`), and each line has a
/// plane for each channel.
struct Windows {
  const float *image; // where the first window begins
  int64_t extent[4], pitch[4], channels;
  const WindowTap *taps;
  int64_t count;
  const float *filters;                      // of `columns` columns, at most nr: nr floats a product
  int64_t channelPitch, planePitch, columns; // from one channel to the next in filters, and in planes
  bool twoChains;                            // not of lines
  const float *bias;                         // or null
  void *to;
  int64_t type, step[4], flags; // of results: elements between neighbouring windows' results
};

/// Flags that say how operands are read, and with them all flags that are not of the epilogue.
constexpr int64_t readFlags = MPT_GEMM_READ_F16 | MPT_GEMM_READ_BF16,
                  orderFlags = MPT_GEMM_ORDERED | MPT_GEMM_TWO_CHAINS, inputFlags = readFlags | orderFlags;

/// The rectangle [m0, m1) x [n0, n1) of one GEMM; pointers are the batch element's.
struct GemmTask {
  const mpt_gemm_desc *desc;
  const void *a, *b, *bias;
  void *d;
  int64_t m0, m1, n0, n1;
  const Gather *gather = nullptr; // its operand is then the image
};

constexpr int64_t lineColumns = 8;

struct GemmKernels {
  const char *name;
  int mr, nr; // register tile; tasks are cut at multiples of it
  /// Computes a task on the calling thread. `scratch` holds scratchBytes of 64-byte aligned memory.
  void (*run)(const GemmTask &task, float *scratch);
  int64_t scratchBytes;
  /// Conversions between FP32 and a narrow floating-point type.
  void (*widen)(int64_t dtype, const void *in, int64_t n, float *out);
  void (*narrow)(int64_t dtype, const float *in, int64_t n, void *out);
  /// c[i] += a[i] * b[i], fused.
  void (*multiplyAdd)(const float *a, const float *b, int64_t n, float *c);
  /// Windows [first, last). Not for operands in pairs.
  void (*windows)(const Windows &windows, int64_t first, int64_t last) = nullptr;
  /// The windows of lines [first, last), for at most lineColumns columns.
  void (*lines)(const Windows &windows, int64_t first, int64_t last) = nullptr;
  /// n columns of k contiguous values, `pitch` apart, as panels.
  void (*packColumns)(int64_t dtype, const void *from, int64_t pitch, int64_t k, int64_t n, float *out) = nullptr;
};

/// FP32 accumulation over f32, f16, bf16 and 8-bit inputs. Null where the build lacks the instruction set.
extern const GemmKernels gemmPortable, gemmAvx2, gemmAvx512, gemmNeon;

/// FP32 accumulation over inputs that BF16 has, on processors that multiply BF16. Not for a gathered B.
extern const GemmKernels gemmAvx512Bf16, gemmAmx;

/// The best that this processor runs for operands of all types.
const GemmKernels &gemmKernels();

/// Whether gemmAmx runs on this processor.
bool hasTiles();

/// The best for this GEMM.
const GemmKernels &gemmKernels(const mpt_gemm_desc &desc, const Gather *gather);

/// Splits a checked GEMM over the threads and runs it with our kernels.
int32_t runOwnGemm(mpt_exec *exec, const mpt_gemm_desc &desc, const void *a, const void *b, const void *bias, void *d,
                   const Gather *gather = nullptr);

/// Any convolution: sums over windows, forward or transposed, or gradients of weights. Their order is
/// MPT_GEMM_ORDERED's.
int32_t convOwn(mpt_exec *exec, const mpt_conv_desc &desc, const void *bias, void *x, void *w, void *y);

/// Convolutions that are GEMMs: true when it took the case (`status` is then its result).
bool convByGemm(mpt_exec *exec, int64_t site, const mpt_conv_desc &desc, const void *bias, void *x, void *w, void *y,
                int32_t &status);

/// Convolutions through a matrix of columns: one row an output position, one column an input
/// channel and kernel position, in the order of the weights.
int32_t convByColumns(mpt_exec *exec, int64_t site, const mpt_conv_desc &desc, const void *bias, void *x, void *w,
                      void *y);
/// Gradients of any weights, from columns of some positions at a time.
int32_t weightsByColumns(mpt_exec *exec, const mpt_conv_desc &desc, void *x, void *w, void *y);

/// FP64 operands.
void gemmF64(const GemmTask &task);

/// A type that oneDNN multiplies natively on this processor, FP32 included. None in builds without oneDNN.
bool oneDnnNative(int64_t dtype);
/// oneDNN's convolutions: true when it took the case (`status` is then its result).
bool convOneDnn(mpt_exec *exec, int64_t site, const mpt_conv_desc &desc, const void *bias, void *x, void *w, void *y,
                void *workspace, int32_t &status);

} // namespace mpt::rt

#endif
