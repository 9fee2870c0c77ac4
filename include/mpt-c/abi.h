// SPDX-License-Identifier: Apache-2.0
/* The contract between the code that mpt-opt emits and libmpt_rt, the runtime that executes it.
 *
 * Users call runtime.h; only emitted libraries and the runtime include this file. An emitted library exports one
 * constant, `mpt_module_desc mpt_module`, and imports the mpt_rt_* functions below, or on CUDA the mpt_cuda_* ones of
 * libmpt_rt_cuda. Everything is plain C: no MLIR, no protobuf, no exceptions. Shapes are static; sizes are in elements
 * unless a name says bytes. */
#ifndef MPT_C_ABI_H
#define MPT_C_ABI_H

#include "mpt-c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct below or the meaning of a field changes; the runtime refuses other versions. */
#define MPT_ABI_VERSION 8

typedef struct mpt_tensor_desc {
  const char *name;     /* ONNX name of the value; unique within its table and role */
  const char *of;       /* the parameter of a master, an optimizer state or an accumulator; "" otherwise */
  const int64_t *shape; /* `rank` extents; row-major, contiguous */
  int64_t rank;
  int64_t dtype; /* mpt_dtype */
  int64_t role;  /* mpt_role */
  int64_t bytes;
  int64_t offset; /* bytes from the start of the state block, 64-byte aligned; 0 for inputs and outputs */
} mpt_tensor_desc;

/* The context of a running function. The runtime fills it in; emitted code reads `state`, `arena`, `constants`,
 * `inputs` and `outputs` (the first five fields, in this order) and hands the pointer to mpt_rt_*. On CUDA all of these
 * are addresses in the memory of the device (the two tables themselves lie on the host). Functions of a step with
 * divided states read `shard` too. */
typedef struct mpt_exec {
  uint8_t *state;            /* persistent block, mpt_module_desc.state_bytes, 64-byte aligned */
  uint8_t *arena;            /* scratch of one call, mpt_function_desc.arena_bytes, 64-byte aligned */
  const uint8_t *constants;  /* read-only blob mapped from the weights file, or NULL */
  const void *const *inputs; /* one pointer an input, in table order, 64-byte aligned */
  void *const *outputs;      /* one pointer an output, in table order */
  void *runtime;             /* the runtime's own */
  uint8_t *shard;            /* `state`, moved on by a shard for each local replica before the one that runs */
} mpt_exec;

typedef int32_t (*mpt_function)(mpt_exec *); /* 0, or the first non-zero status an mpt_rt_* call returned */

/* One runtime call of a function, for profiles. */
typedef struct mpt_call_desc {
  const char *what; /* the library call with its shape, or the kernel with the ops in it */
  const char *node; /* name of the node that it computes, or of the last one of several */
  int64_t bytes;    /* of the buffers that it reads and writes */
  int64_t flops;    /* of GEMMs and convolutions, a multiplication and an addition counted as two; else 0 */
} mpt_call_desc;

/* One scratch buffer of a function's plan, for messages. */
typedef struct mpt_buffer_desc {
  const char *what; /* type and shape */
  const char *node; /* name of the node that it belongs to */
  int64_t bytes;
} mpt_buffer_desc;

/* Elements of an input that a node takes as indices or labels. They form a box: `offset` plus a multiple below shape[i]
 * of each strides[i], in the input's row-major elements. Each, rounded toward zero where it is floating-point, has to
 * lie in one of the ranges, which are pairs of a lowest and a highest value. The runtime looks before it starts the
 * function. */
typedef struct mpt_index_desc {
  int64_t input; /* its number */
  const char *node;
  int64_t offset, rank;
  const int64_t *shape, *strides;
  int64_t num_ranges;
  const int64_t *ranges;
} mpt_index_desc;

/* A step with replicas is functions with phases 1, 2 ... The first computes a replica's contributions: outputs of FP32
 * of role SUM or MAX, and an input of role REPLICA_NUMBER where it draws random numbers. The last takes the reductions
 * over all replicas as inputs of the same names and roles, and runs once; the manifest's "replicas" has the number of
 * replicas, and the inputs that are split.
 *
 * With divided states, replicas meet more than once: phases between the two run once a replica as well. Outputs may be
 * of role SCATTER too, of V rows, of which replica k gets the sums of row k; and of role GATHER, one row a replica,
 * which come back as V rows in their order. States that are divided lie behind all others. The table has one replica's
 * shard of each; a process has one behind the other for its replicas, and mpt_exec.shard is where their offsets count
 * from. The manifest's "shards" has the shapes of the whole tensors, and the bytes of the shards of a replica. */
typedef struct mpt_function_desc {
  const char *name; /* "step", "gradients", "evaluate", "accumulate", "replica", "between_1", "combine" */
  mpt_function entry;
  int64_t arena_bytes;
  int64_t call_sites; /* library calls in the function; `site` arguments are below this */
  int64_t num_inputs;
  const mpt_tensor_desc *inputs;
  int64_t num_outputs;
  const mpt_tensor_desc *outputs;
  int64_t num_calls;          /* 0 when nothing is known about them */
  const mpt_call_desc *calls; /* in the order in which the function makes them */
  int64_t num_buffers;
  const mpt_buffer_desc *buffers; /* the largest ones of the arena, largest first */
  int64_t num_indices;
  const mpt_index_desc *indices;
  int64_t phase; /* of a step with replicas, from 1; 0 for other functions */
} mpt_function_desc;

/* A kernel for a GPU. Its parameters are `num_args` addresses in device memory. */
typedef struct mpt_kernel_desc {
  const char *name; /* entry point in every image */
  int64_t grid[3], block[3];
  int64_t shared_bytes; /* dynamic shared memory */
  int64_t num_args;
} mpt_kernel_desc;

typedef enum mpt_image_kind {
  MPT_IMAGE_PTX = 0,   /* text, ends in a zero byte that counts; runs on `arch` and later ones */
  MPT_IMAGE_CUBIN = 1, /* machine code of `arch`; runs on the same major version, same or later minor */
  MPT_IMAGE_HOST = 2   /* an mpt_host_image with a function for each kernel, for tests without a GPU; `arch` is 0 */
} mpt_image_kind;

/* A kernel as loops over its blocks and threads: called with the range [0, 1) it runs the whole grid. */
typedef void (*mpt_host_kernel)(void *const *args, int64_t begin, int64_t end);
typedef struct mpt_host_image {
  int64_t num_kernels;
  const mpt_kernel_desc *descs;   /* the module's own table */
  const mpt_host_kernel *kernels; /* NULL for a kernel whose work another one does too */
} mpt_host_image;

/* The code of all kernels for one architecture. */
typedef struct mpt_image_desc {
  int64_t kind; /* mpt_image_kind */
  int64_t arch; /* 10 * major + minor version of the compute capability */
  int64_t bytes;
  const void *data;
} mpt_image_desc;

typedef struct mpt_module_desc {
  int64_t abi_version;
  const char *name;         /* model name, as in lib<name>.so */
  const char *fingerprint;  /* hex digest of names, shapes and types of the state; guards checkpoints */
  const char *manifest;     /* JSON: policy, optimizer and its defaults, default learning rate, source file, compiler */
  const char *cpu;          /* processor the code was generated for, as -mcpu names it */
  const char *cpu_features; /* comma-separated features that the code requires, e.g. "avx2,fma,f16c" */
  int64_t state_bytes;
  int64_t num_state;
  const mpt_tensor_desc *state;
  int64_t num_functions;
  const mpt_function_desc *functions;
  const char *target; /* "cpu" or "cuda" */
  int64_t num_kernels;
  const mpt_kernel_desc *kernels; /* in the order of the numbers that mpt_cuda_launch takes; CUDA only */
  int64_t num_images;
  const mpt_image_desc *images; /* CUDA only */
} mpt_module_desc;

/* ---- called by emitted code ------------------------------------------------------------------------------------- */
/* One generated loop nest over the half-open range [begin, end) of its outermost, parallel, flattened dimension. */
typedef void (*mpt_kernel)(void *const *args, int64_t begin, int64_t end);

/* Runs kernel over [0, n), split into at most one contiguous chunk a thread, boundaries at multiples of `grain`. Runs
 * on the calling thread when n <= grain. The split depends on n, grain and the thread count alone. */
void mpt_rt_parallel(mpt_exec *exec, mpt_kernel kernel, void *const *args, int64_t n, int64_t grain);

enum {
  MPT_GEMM_BIAS = 1,            /* add bias[n], broadcast over rows */
  MPT_GEMM_RELU = 2,            /* max(x, 0) after bias */
  MPT_GEMM_ACCUMULATE = 4,      /* d += result; d is read in its own type */
  MPT_GEMM_GELU_ERF = 8,        /* x/2 (1 + erf(x/sqrt 2)) after bias */
  MPT_GEMM_GELU_TANH = 16,      /* tanh form after bias */
  MPT_GEMM_ROUND = 32,          /* round to d's type after the GEMM and after each step that follows it */
  MPT_GEMM_SCALE = 64,          /* alpha is multiplied by bias[0], an FP32 number; CPU only, without any other flag */
  MPT_GEMM_KEEP = 128,          /* up to SUM_D CUDA only; writes aux, for the gradient of RELU or GELU_TANH */
  MPT_GEMM_RELU_GRADIENT = 256, /* reads aux: the GEMM is masked by it */
  MPT_GEMM_GELU_TANH_GRADIENT = 512, /* reads aux: the GEMM is multiplied by the derivative there */
  MPT_GEMM_SUM_A = 1024,             /* sums[m] of a over k, of bias_type */
  MPT_GEMM_SUM_B = 2048,             /* sums[n] of b over k, likewise */
  MPT_GEMM_SUM_D = 4096,             /* sums[n] of d over its rows, with a gradient of ReLU or GELU, likewise */
  MPT_GEMM_ORDERED = 8192,           /* CPU only: sums take their terms one by one, fused (docs/precision.md) */
  MPT_GEMM_READ_F16 = 16384,
  MPT_GEMM_READ_BF16 = 32768, /* CPU only: FP32 operands are rounded to it as they are read */
  MPT_GEMM_TWO_CHAINS = 65536 /* with ORDERED, of two BF16 operands: sums take their terms as matrix tiles do */
};

/* d[i,j] = epilogue(alpha * sum_k a[i,k] * b[k,j]) for every (batch0, batch1). GEMMs are exact in FP32 for 16-bit
 * inputs and sums are FP32 (FP64 for FP64 inputs); the result is rounded once, to nearest even, to d's type. Strides
 * are in elements; one of row and col is 1 for each matrix; a zero batch stride broadcasts. Fields have 64 bits. */
typedef struct mpt_gemm_desc {
  int64_t m, n, k;
  int64_t batch0, batch1;
  int64_t a_type, b_type, d_type, bias_type; /* mpt_dtype */
  int64_t a_batch0, a_batch1, a_row, a_col;  /* a is m x k */
  int64_t b_batch0, b_batch1, b_row, b_col;  /* b is k x n */
  int64_t d_batch0, d_batch1, d_row, d_col;  /* d is m x n; d_col is 1 */
  int64_t flags;
  double alpha;
} mpt_gemm_desc;

int32_t mpt_rt_gemm(mpt_exec *exec, int64_t site, const mpt_gemm_desc *desc, const void *a, const void *b,
                    const void *bias, void *d);

typedef enum mpt_conv_kind {
  MPT_CONV_FORWARD = 0,         /* x, w, bias? -> y */
  MPT_CONV_BACKWARD_DATA = 1,   /* y, w -> x (also transposed convolution; bias? of extent ic) */
  MPT_CONV_BACKWARD_WEIGHTS = 2 /* x, y -> w */
} mpt_conv_kind;

/* Convolution in channels-last memory. x is [n, in..., ic], y is [n, out..., oc], both dense with channels innermost;
 * w is dense [oc, ic/groups, kernel...] as ONNX stores it. Three spatial dimensions; unused leading ones have in = out
 * = kernel = stride = dilation = 1 and pad 0. Accumulation is FP32. All fields are 64 bits wide. */
typedef struct mpt_conv_desc {
  int64_t kind; /* mpt_conv_kind */
  int64_t n, groups, ic, oc;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_low[3], pad_high[3];
  int64_t x_type, w_type, y_type, bias_type; /* mpt_dtype; bias_type 0 means no bias */
  int64_t flags;           /* on the forward kind MPT_GEMM_RELU and MPT_GEMM_TWO_CHAINS; MPT_GEMM_ORDERED */
  int64_t workspace_bytes; /* size of `workspace`, as mpt_conv_workspace says */
} mpt_conv_desc;

/* The three tensors are given by role, whatever the kind; the one the kind produces is written. `workspace` is 64-byte
 * aligned scratch that the compiler planned. */
int32_t mpt_rt_conv(mpt_exec *exec, int64_t site, const mpt_conv_desc *desc, const void *bias, void *x, void *w,
                    void *y, void *workspace);

/* Non-zero for convolutions over so few positions that their weights dominate, and 1 x 1 ones with strides. */
static inline int mpt_conv_by_columns(const mpt_conv_desc *d) {
  int64_t taps = 1, rows = d->n;
  for (int i = 0; i < 3; ++i) {
    taps *= d->kernel[i];
    rows *= d->out[i];
  }
  if (taps == 1)
    return d->kind != MPT_CONV_BACKWARD_WEIGHTS;
  return d->oc >= 64 && rows * 16 <= d->ic * taps && rows * d->ic * taps <= 2097152;
}

/* Non-zero for 1 x 1 convolutions that read every position once. */
static inline int mpt_conv_is_pointwise(const mpt_conv_desc *d) {
  for (int i = 0; i < 3; ++i)
    if (d->kernel[i] != 1 || d->stride[i] != 1 || d->pad_low[i] || d->pad_high[i])
      return 0;
  return 1;
}

/* Non-zero for convolutions that the runtime computes as GEMMs in the types as they are stored: 1 x 1 ones,
 * convolutions by columns, and gradients of weights over channels that fill vectors. */
static inline int mpt_conv_is_gemm(const mpt_conv_desc *d) {
  const int64_t types[3] = {d->x_type, d->w_type, d->y_type};
  for (int i = 0; i < 3; ++i)
    if (types[i] == MPT_FLOAT64)
      return 0;
  return d->groups == 1 && (mpt_conv_is_pointwise(d) || mpt_conv_by_columns(d) ||
                            (d->kind == MPT_CONV_BACKWARD_WEIGHTS && d->ic % 32 == 0));
}

/* Scratch that a convolution needs: FP32 copies of its 16-bit and 8-bit tensors, each rounded up to 64 bytes, unless it
 * is a GEMM or the processor multiplies that type itself (native != 0). Shared by compiler and runtime so that they
 * cannot disagree. */
static inline int64_t mpt_conv_workspace(const mpt_conv_desc *d, int native) {
  int64_t xs = d->n * d->ic, ys = d->n * d->oc, ws = d->oc * (d->ic / d->groups), total = 0;
  for (int i = 0; i < 3; ++i) {
    xs *= d->in[i];
    ys *= d->out[i];
    ws *= d->kernel[i];
  }
  if (native || mpt_conv_is_gemm(d))
    return 0;
  if (d->x_type != MPT_FLOAT32 && d->x_type != MPT_FLOAT64)
    total += (xs * 4 + 63) / 64 * 64;
  if (d->y_type != MPT_FLOAT32 && d->y_type != MPT_FLOAT64)
    total += (ys * 4 + 63) / 64 * 64;
  if (d->w_type != MPT_FLOAT32 && d->w_type != MPT_FLOAT64)
    total += (ws * 4 + 63) / 64 * 64;
  return total;
}

/* Dense copy; zero fill. Parallel for large sizes. */
void mpt_rt_copy(mpt_exec *exec, void *dst, const void *src, int64_t bytes);
void mpt_rt_zero(mpt_exec *exec, void *dst, int64_t bytes);

/* Output `output` of the running function, a first phase, is complete, so that it can travel while the rest is
 * computed. */
void mpt_rt_ready(mpt_exec *exec, int64_t output);

/* A float buffer that call `call` of the running function has written, in libraries that were compiled with
 * --debug-nonfinite. All fields are 64 bits wide; strides are in elements. */
enum { MPT_CHECK_RANK = 8, MPT_CHECK_INFINITIES_MEANT = 1 /* flag: a mask holds them; only NaN counts */ };
typedef struct mpt_check_desc {
  int64_t call, dtype, flags, rank;
  int64_t shape[MPT_CHECK_RANK], strides[MPT_CHECK_RANK];
} mpt_check_desc;

/* Remembers the first buffer of a run that holds infinities or NaN. */
void mpt_rt_check(mpt_exec *exec, const mpt_check_desc *desc, const void *data);

#ifdef __cplusplus
}
#endif

#include "mpt-c/abi_cuda.h"
#include "mpt-c/abi_recurrence.h"

#endif
