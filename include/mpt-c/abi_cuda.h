// SPDX-License-Identifier: Apache-2.0
/* Functions that code emitted for CUDA calls: the part of mpt-c/abi.h (which includes this) that libmpt_rt_cuda has in
 * place of the mpt_rt_* functions: the same contract for calls. */
#ifndef MPT_C_ABI_CUDA_H
#define MPT_C_ABI_CUDA_H

#include "mpt-c/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The same operations on device memory. They put work on the trainer's stream and return; a status other than 0 means
 * that nothing was enqueued. Names of their own, because a process may hold models and runtimes of both kinds.
 *
 * Differences: filters of convolutions lie in memory as [oc, kernel..., ic/groups]; `workspace` is not used (the
 * runtime has its own); MPT_GEMM_ROUND has no effect, the result is rounded once. GEMMs of FP32 never pass through
 * TF32; sums are FP32 (FP64 for FP64). */
int32_t mpt_cuda_launch(mpt_exec *exec, int64_t kernel, void *const *args);
int32_t mpt_cuda_gemm(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                      const void *bias, void *d);
/* The same with 8-bit operands that are multiplied by one FP32 number each, on the device. */
int32_t mpt_cuda_gemm_scaled(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                             const void *bias, void *d, const void *scale_a, const void *scale_b);
/* mpt_cuda_gemm_scaled (scales may be null) with data from forward to backward epilogues of GEMMs. aux: after
 * MPT_GEMM_GELU_TANH the sum before it, of d's type and strides; after MPT_GEMM_RELU a bit an element, rows of 128 bits
 * or a multiple. Null where no flag wants it. */
int32_t mpt_cuda_gemm_chained(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                              const void *bias, void *d, const void *scale_a, const void *scale_b, void *aux,
                              void *sums);

/* Attention of `heads` queries over `kv_heads` keys and values (which divide them): see rt.attention. Strides in
 * elements: of batch, head and row; depth is contiguous. Nothing is padded: extents are the real ones. */
typedef struct mpt_attention_desc {
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  int64_t type, bias_type; /* mpt_dtype: FP16 or BF16; of the bias, 0 where there is none */
  int64_t causal;          /* 1: query i sees keys 0 to i */
  int64_t q_strides[3], k_strides[3], v_strides[3], o_strides[3];
  int64_t do_strides[3], dq_strides[3], dk_strides[3], dv_strides[3]; /* of the gradients; 0 in the forward call */
  int64_t bias_strides[4]; /* of batch, head, query and key; 0 where it repeats */
  double scale;
} mpt_attention_desc;

/* stats: FP32 [batch, heads, queries], dense. Through cuDNN where it has an engine, else by GEMMs of some heads at a
 * time with scores in scratch, or where heads share keys by kernels of the library (attention_tiles.hpp). */
int32_t mpt_cuda_attention(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc, const void *q, const void *k,
                           const void *v, const void *bias, void *o, void *stats);
int32_t mpt_cuda_attention_gradient(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc, const void *q,
                                    const void *k, const void *v, const void *bias, const void *o, const void *stats,
                                    const void *d_o, void *dq, void *dk, void *dv);
/* The same with dropout of the probabilities: number i of them, row by row in [batch, heads, queries, keys], is kept
 * where word i of Philox 4x32-10 (see mpt.dropout) is at least ratio 2^32, and divided by 1 - ratio. key: int64 [2],
 * seed and step, on the device. Always by kernels of the library. */
typedef struct mpt_attention_dropout {
  double ratio; /* above 0, below 1 */
  int64_t stream;
} mpt_attention_dropout;
int32_t mpt_cuda_attention_dropout(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc,
                                   const mpt_attention_dropout *dropout, const void *key, const void *q, const void *k,
                                   const void *v, const void *bias, void *o, void *stats);
int32_t mpt_cuda_attention_gradient_dropout(mpt_exec *exec, int64_t site, const mpt_attention_desc *desc,
                                            const mpt_attention_dropout *dropout, const void *key, const void *q,
                                            const void *k, const void *v, const void *bias, const void *o,
                                            const void *stats, const void *d_o, void *dq, void *dk, void *dv);

int32_t mpt_cuda_conv(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, const void *bias, void *x, void *w,
                      void *y, void *workspace);
/* A forward convolution that leaves, in `sums` (FP32, [2, oc]), the sums of y's elements by channel and of their
 * squares, in an order that is the same every time; NaN in all of them where the library does not gather them. */
int32_t mpt_cuda_conv_sums(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, void *x, void *w, void *y,
                           void *sums);
/* A backward-data convolution whose x is the gradient of relu(n * scale + shift), n = (input - mean) * inverse, where
 * `input` lies as x does and the other four are FP32 by channel. It leaves, in `sums` (FP32, [2, ic]), the sums by
 * channel of g and of g * n, where g is x's element if relu's operand is positive and 0 otherwise, in an order that is
 * the same every time; NaN in all of them where the library does not gather them. x's elements outside of g may be left
 * 0. */
int32_t mpt_cuda_conv_norm_sums(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, void *x, void *w, void *y,
                                void *sums, const void *input, const void *mean, const void *inverse, const void *scale,
                                const void *shift);
int32_t mpt_cuda_copy(mpt_exec *exec, void *dst, const void *src, int64_t bytes);
int32_t mpt_cuda_zero(mpt_exec *exec, void *dst, int64_t bytes);
/* As mpt_rt_repeat (abi_recurrence.h). */
int32_t mpt_cuda_repeat(mpt_exec *exec, int64_t call);
/* As mpt_rt_check, by a kernel of the library; waits for it. */
int32_t mpt_cuda_check(mpt_exec *exec, const mpt_check_desc *desc, const void *data);
/* Brings constants of the library, `bytes` of them at `host`, to the device once; their address there goes to `out`. */
int32_t mpt_cuda_constant(mpt_exec *exec, const void *host, int64_t bytes, const void **out);

#ifdef __cplusplus
}
#endif
#endif
