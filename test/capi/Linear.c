// SPDX-License-Identifier: Apache-2.0
/* An emitted library written by hand: prediction = x w + b, mean squared error, SGD with momentum, w stored in FP16
 * with an FP32 master, dynamic loss scale. It stands in for the compiler in the tests of the runtime. */
#include "mpt-c/abi.h"

#include <math.h>
#include <stddef.h>

#ifndef MODULE_ABI
#define MODULE_ABI MPT_ABI_VERSION
#endif
#ifndef MODULE_FEATURES
#define MODULE_FEATURES "sse2"
#endif
#ifndef MODULE_TARGET
#define MODULE_TARGET "cpu"
#endif
#ifndef MODULE_FINGERPRINT
#define MODULE_FINGERPRINT "5eed"
#endif

enum { ROWS = 4, IN = 3, OUT = 2 };

static const int64_t shapeX[] = {ROWS, IN}, shapeY[] = {ROWS, OUT}, shapeW[] = {IN, OUT}, shapeB[] = {OUT},
                     shapeRng[] = {2};

/* clang-format off */
static const mpt_tensor_desc state[] = {
    {"w", "", shapeW, 2, MPT_FLOAT16, MPT_ROLE_PARAMETER, 12, 0},
    {"w.master", "w", shapeW, 2, MPT_FLOAT32, MPT_ROLE_MASTER, 24, 64},
    {"w.momentum", "w", shapeW, 2, MPT_FLOAT32, MPT_ROLE_SLOT, 24, 128},
    {"b", "", shapeB, 1, MPT_FLOAT32, MPT_ROLE_PARAMETER, 8, 192},
    {"b.momentum", "b", shapeB, 1, MPT_FLOAT32, MPT_ROLE_SLOT, 8, 256},
    {"scale", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_SCALE, 4, 320},
    {"step", "", NULL, 0, MPT_INT64, MPT_ROLE_COUNTER, 8, 384},
    {"rng", "", shapeRng, 1, MPT_UINT64, MPT_ROLE_RNG, 16, 448},
};
static const mpt_tensor_desc stepInputs[] = {
    {"x", "", shapeX, 2, MPT_FLOAT32, MPT_ROLE_INPUT, 48, 0},
    {"y", "", shapeY, 2, MPT_FLOAT32, MPT_ROLE_INPUT, 32, 0},
    {"learning_rate", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_INPUT, 4, 0},
};
static const mpt_tensor_desc stepOutputs[] = {
    {"loss", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_LOSS, 4, 0},
    {"skipped", "", NULL, 0, MPT_BOOL, MPT_ROLE_SKIPPED, 1, 0},
    {"loss_scale", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_LOSS_SCALE, 4, 0},
    {"grad_norm", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_GRAD_NORM, 4, 0},
};
static const mpt_tensor_desc gradientOutputs[] = {
    {"loss", "", NULL, 0, MPT_FLOAT32, MPT_ROLE_LOSS, 4, 0},
    {"w", "", shapeW, 2, MPT_FLOAT32, MPT_ROLE_OUTPUT, 24, 0},
    {"b", "", shapeB, 1, MPT_FLOAT32, MPT_ROLE_OUTPUT, 8, 0},
};
static const mpt_tensor_desc evaluateOutputs[] = {
    {"prediction", "", shapeY, 2, MPT_FLOAT32, MPT_ROLE_OUTPUT, 32, 0},
};
/* clang-format on */

static int32_t gemm(mpt_exec *exec, int64_t site, int64_t m, int64_t n, int64_t k, int64_t bType, const void *a,
                    int64_t aRow, int64_t aCol, const void *b, int64_t bRow, int64_t bCol, const void *bias, void *d) {
  mpt_gemm_desc g = {0};
  g.m = m, g.n = n, g.k = k, g.batch0 = g.batch1 = 1, g.alpha = 1;
  g.a_type = g.d_type = g.bias_type = MPT_FLOAT32, g.b_type = bType;
  g.a_row = aRow, g.a_col = aCol, g.b_row = bRow, g.b_col = bCol, g.d_row = n, g.d_col = 1;
  g.flags = bias ? MPT_GEMM_BIAS : 0;
  return mpt_rt_gemm(exec, site, &g, a, b, bias, d);
}

static int32_t predict(mpt_exec *exec, float *prediction) {
  return gemm(exec, 0, ROWS, OUT, IN, MPT_FLOAT16, exec->inputs[0], IN, 1, exec->state, OUT, 1, exec->state + 192,
              prediction);
}

/* The loss, and its gradient times `scale`. */
static int32_t differentiate(mpt_exec *exec, float scale, float *loss, float *dw, float *db) {
  float *delta = (float *)exec->arena;
  const float *y = exec->inputs[1];
  int32_t status = predict(exec, delta);
  if (status)
    return status;
  *loss = 0;
  for (int i = 0; i < ROWS * OUT; ++i) {
    float error = delta[i] - y[i];
    *loss += error * error / (ROWS * OUT);
    delta[i] = scale * 2 * error / (ROWS * OUT);
  }
  db[0] = db[1] = 0;
  for (int i = 0; i < ROWS * OUT; ++i)
    db[i % OUT] += delta[i];
  return gemm(exec, 1, IN, OUT, ROWS, MPT_FLOAT32, exec->inputs[0], 1, IN, delta, OUT, 1, NULL, dw);
}

/* FP32 to FP16 for normal values, to nearest even. */
static uint16_t half(float x) {
  union {
    float f;
    uint32_t u;
  } v = {x};
  uint32_t magnitude = v.u & 0x7fffffffu;
  if (magnitude < 0x38800000u)
    return (uint16_t)(v.u >> 16 & 0x8000);
  magnitude = magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23);
  return (uint16_t)((v.u >> 16 & 0x8000) | magnitude >> 13);
}

static int32_t step(mpt_exec *exec) {
  float *gradient = (float *)(exec->arena + 64), *scale = (float *)(exec->state + 320), used = *scale, norm = 0;
  int32_t status = differentiate(exec, used, exec->outputs[0], gradient, gradient + IN * OUT);
  if (status)
    return status;
  for (int i = 0; i < IN * OUT + OUT; ++i) {
    gradient[i] /= used;
    norm += gradient[i] * gradient[i];
  }
  int skipped = !isfinite(norm);
  *(uint8_t *)exec->outputs[1] = (uint8_t)skipped;
  *(float *)exec->outputs[2] = used;
  *(float *)exec->outputs[3] = sqrtf(norm);
  if (skipped) {
    *scale = used / 2;
    return 0;
  }
  for (int i = 0; i < IN * OUT + OUT; ++i) {
    int inB = i >= IN * OUT, k = inB ? i - IN * OUT : i;
    float *momentum = (float *)(exec->state + (inB ? 256 : 128)) + k;
    float *value = (float *)(exec->state + (inB ? 192 : 64)) + k;
    *momentum = 0.9f * *momentum + gradient[i];
    *value -= *(const float *)exec->inputs[2] * *momentum;
    if (!inB)
      ((uint16_t *)exec->state)[k] = half(*value);
  }
  ++*(int64_t *)(exec->state + 384);
  ++*(uint64_t *)(exec->state + 456);
  return 0;
}

static int32_t gradients(mpt_exec *exec) {
  return differentiate(exec, 1, exec->outputs[0], exec->outputs[1], exec->outputs[2]);
}

static int32_t evaluate(mpt_exec *exec) { return predict(exec, exec->outputs[0]); }

static const mpt_function_desc functions[] = {
    {"step", step, 128, 2, 3, stepInputs, 4, stepOutputs, 0, NULL, 0, NULL, 0, NULL, 0},
    {"gradients", gradients, 64, 2, 2, stepInputs, 3, gradientOutputs, 0, NULL, 0, NULL, 0, NULL, 0},
    {"evaluate", evaluate, 0, 1, 1, stepInputs, 1, evaluateOutputs, 0, NULL, 0, NULL, 0, NULL, 0},
};

const mpt_module_desc mpt_module = {MODULE_ABI,
                                    "linear",
                                    MODULE_FINGERPRINT,
                                    "{\"optimizer\":\"sgd\",\"learning_rate\":0.05}",
                                    "x86-64",
                                    MODULE_FEATURES,
                                    512,
                                    8,
                                    state,
                                    3,
                                    functions,
                                    MODULE_TARGET,
                                    0,
                                    NULL,
                                    0,
                                    NULL};
