// SPDX-License-Identifier: Apache-2.0
// Convolutions as graphs of cuDNN's: alone, and with sums of their results by channel.
#ifndef MPT_RUNTIME_CUDA_CONVGRAPH_H
#define MPT_RUNTIME_CUDA_CONVGRAPH_H

#include "cuda/GraphPlan.h"

namespace mpt::rt {

/// A graph of a convolution by cuDNN of `version`, whose FP32 operands may be rounded to TF32. Without a form where
/// cuDNN takes none such: types, padding that differs between sides. All operands have to be aligned as areAligned()
/// says.
using ConvRequest = GraphRequest (*)(const mpt_conv_desc &desc, size_t version, bool tf32);

/// The convolution alone: of one type, or of 16-bit operands with an FP32 result. Pointers of a run: x, w, y.
GraphRequest requestConv(const mpt_conv_desc &desc, size_t version, bool tf32 = false);

/// A forward convolution and, by channel, the sums of its results and of their squares. Pointers of a run: x, w, y,
/// sums, sums of squares.
GraphRequest requestConvWithSums(const mpt_conv_desc &desc, size_t version, bool tf32 = false);

/// The same for a backward-data convolution and the sums of the batch norm before it (mpt_cuda_conv_norm_sums).
/// Pointers of a run: x, w, y, the two sums, input, mean, inverse, scale, shift.
GraphRequest requestConvWithNormSums(const mpt_conv_desc &desc, size_t version, bool tf32 = false);

/// The operation of a convolution of `desc.kind` between tensors.
dnn::Descriptor convOperation(GraphMaker &b, const mpt_conv_desc &desc, dnn::Descriptor x, dnn::Descriptor w,
                              dnn::Descriptor y);

/// Whether cuDNN can be asked: types that it has, and padding that is the same on both sides as far as it is read.
bool isTakenByGraphs(const mpt_conv_desc &desc);

} // namespace mpt::rt

#endif
