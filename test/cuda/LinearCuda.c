// SPDX-License-Identifier: Apache-2.0
/* A library emitted for CUDA, written by hand: prediction = x w + b, mean squared error, SGD. Its kernels run on the
 * host, in the fake driver. */
#include "mpt-c/abi.h"

#include <stddef.h>

#ifndef MODULE_ARCH
#define MODULE_ARCH 0
#endif
#ifndef MODULE_ARENA
#define MODULE_ARENA 512
#endif

enum { ROWS = 4, IN = 3, OUT = 2 };

static const int64_t shapeX[] = {ROWS, IN}, shapeY[] = {ROWS, OUT}, shapeW[] = {IN, OUT}, shapeB[] = {OUT};

/* clang-format off */
static const mpt_tensor_desc state[] = {
    {"w", "", shapeW, 2, MPT_FLOAT32, MPT_ROLE_PARAMETER, 24, 0},
    {"b", "", shapeB, 1, MPT_FLOAT32, MPT_ROLE_PARAMETER, 8, 64},
    {"step", "", NULL, 0, MPT_INT64, MPT_ROLE_COUNTER, 8, 128},
};
static const mpt_tensor_desc inputs[] = {
    {"x", "", shapeX, 2, MPT_FLOAT32, MPT_ROLE_INPUT, 48, 0},
    {"y", "", shapeY, 2, MPT_FLOAT32, MPT_ROLE_INPUT, 32, 0},
    {"learning_rate", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_INPUT, 4, 0},
};
static const mpt_tensor_desc stepOutputs[] = {{"loss", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_LOSS, 4, 0}};
static const mpt_tensor_desc evaluateOutputs[] = {
    {"prediction", "", shapeY, 2, MPT_FLOAT32, MPT_ROLE_OUTPUT, 32, 0},
    {"masked", "", shapeY, 2, MPT_FLOAT32, MPT_ROLE_OUTPUT, 32, 0},
    {"sums", "", shapeB, 1, MPT_FLOAT32, MPT_ROLE_OUTPUT, 8, 0},
};
/* clang-format on */

/* delta <- 2 (delta - y) / n; loss */
static void errorKernel(void *const *args, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  float *delta = args[0], *loss = args[2];
  const float *y = args[1], *two = args[3];
  *loss = 0;
  for (int i = 0; i < ROWS * OUT; ++i) {
    float error = delta[i] - y[i];
    *loss += error * error / (ROWS * OUT);
    delta[i] = *two * error / (ROWS * OUT);
  }
}

/* b's gradient, and the update of everything */
static void updateKernel(void *const *args, int64_t begin, int64_t end) {
  (void)begin, (void)end;
  float *w = args[0], *b = args[1];
  const float *dw = args[3], *delta = args[4], *rate = args[5];
  for (int i = 0; i < IN * OUT; ++i)
    w[i] -= *rate * dw[i];
  for (int i = 0; i < ROWS * OUT; ++i)
    b[i % OUT] -= *rate * delta[i];
  ++*(int64_t *)args[2];
}

static const mpt_kernel_desc kernels[] = {
    {"error", {1, 1, 1}, {32, 1, 1}, 0, 4},
    {"update", {2, 1, 1}, {64, 1, 1}, 0, 6},
};
static const mpt_host_kernel hostKernels[] = {errorKernel, updateKernel};
static const mpt_host_image hostImage = {2, kernels, hostKernels};
static const mpt_image_desc images[] = {
    {MODULE_ARCH ? MPT_IMAGE_CUBIN : MPT_IMAGE_HOST, MODULE_ARCH, sizeof hostImage, &hostImage}};

static mpt_gemm_desc describe(int64_t m, int64_t n, int64_t k, int64_t aRow, int64_t aCol, int64_t flags) {
  mpt_gemm_desc g = {0};
  g.m = m, g.n = n, g.k = k, g.batch0 = g.batch1 = 1, g.alpha = 1;
  g.a_type = g.b_type = g.d_type = g.bias_type = MPT_FLOAT32;
  g.a_row = aRow, g.a_col = aCol, g.b_row = n, g.b_col = 1, g.d_row = n, g.d_col = 1;
  g.flags = flags;
  return g;
}

static int32_t gemm(mpt_exec *exec, int64_t site, int64_t m, int64_t n, int64_t k, const void *a, int64_t aRow,
                    int64_t aCol, const void *b, const void *bias, void *d) {
  mpt_gemm_desc g = describe(m, n, k, aRow, aCol, bias ? MPT_GEMM_BIAS : 0);
  return mpt_cuda_gemm(exec, site, &g, a, b, bias, d);
}

static int32_t predict(mpt_exec *exec, void *prediction) {
  return gemm(exec, 0, ROWS, OUT, IN, exec->inputs[0], IN, 1, exec->state, exec->state + 64, prediction);
}

static int32_t step(mpt_exec *exec) {
  static const float two = 2;
  const void *constant;
  void *delta = exec->arena, *dw = exec->arena + 64, *copy = exec->arena + 128;
  int32_t status = mpt_cuda_constant(exec, &two, sizeof two, &constant);
  status = status ? status : predict(exec, delta);
  void *error[] = {delta, (void *)exec->inputs[1], exec->outputs[0], (void *)constant};
  status = status ? status : mpt_cuda_launch(exec, 0, error);
  status = status ? status : gemm(exec, 1, IN, OUT, ROWS, exec->inputs[0], 1, IN, delta, NULL, dw);
  status = status ? status : mpt_cuda_copy(exec, copy, dw, 24);
  status = status ? status : mpt_cuda_zero(exec, dw, 24);
  void *update[] = {exec->state, exec->state + 64, exec->state + 128, copy, delta, (void *)exec->inputs[2]};
  return status ? status : mpt_cuda_launch(exec, 1, update);
}

/* With MODULE_RELU: prediction = relu(x w + b), and x w where that is positive, with its sums down the columns. */
static int32_t evaluate(mpt_exec *exec) {
#ifdef MODULE_RELU
  const void *x = exec->inputs[0], *w = exec->state;
  mpt_gemm_desc forward = describe(ROWS, OUT, IN, IN, 1, MPT_GEMM_BIAS | MPT_GEMM_RELU | MPT_GEMM_KEEP);
  mpt_gemm_desc backward = describe(ROWS, OUT, IN, IN, 1, MPT_GEMM_RELU_GRADIENT | MPT_GEMM_SUM_D);
  int32_t status =
      mpt_cuda_gemm_chained(exec, 0, &forward, x, w, exec->state + 64, exec->outputs[0], NULL, NULL, exec->arena, NULL);
  return status ? status
                : mpt_cuda_gemm_chained(exec, 1, &backward, x, w, NULL, exec->outputs[1], NULL, NULL, exec->arena,
                                        exec->outputs[2]);
#else
  return predict(exec, exec->outputs[0]);
#endif
}

static const mpt_call_desc stepCalls[] = {{"gemm 4x2x3", "/fc/Gemm", 0, 0},   {"error (sub, mul)", "/loss", 0, 0},
                                          {"gemm 3x2x4 T", "/fc/Gemm", 0, 0}, {"copy", "/fc/Gemm", 0, 0},
                                          {"zero", "/fc/Gemm", 0, 0},         {"update (sub)", "/fc/bias", 0, 0}};
static const mpt_buffer_desc buffers[] = {{"f32 4x2", "/fc/Gemm", MODULE_ARENA - 128}, {"f32 3x2", "/loss", 24}};
static const mpt_function_desc functions[] = {
    {"step", step, MODULE_ARENA, 2, 3, inputs, 1, stepOutputs, 6, stepCalls, 2, buffers, 0, NULL, 0},
#ifdef MODULE_RELU
    {"evaluate", evaluate, 512, 2, 1, inputs, 3, evaluateOutputs, 0, NULL, 0, NULL, 0, NULL, 0},
#else
    {"evaluate", evaluate, 0, 1, 1, inputs, 1, evaluateOutputs, 0, NULL, 0, NULL, 0, NULL, 0},
#endif
};

__attribute__((visibility("default"))) const mpt_module_desc mpt_module = {
    MPT_ABI_VERSION, "linear", "5eed", "{\"learning_rate\":0.1}", "generic", "", 192, 3, state, 2, functions, "cuda", 2,
    kernels,         1,        images};
