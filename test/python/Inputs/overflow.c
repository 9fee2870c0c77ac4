// SPDX-License-Identifier: Apache-2.0
/* Steps a compiled model with an infinite input in between; every state tensor that a skipped step may not move is
 * compared. */
#include "mpt-c/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(mpt_status status) {
  if (status == MPT_OK)
    return;
  fprintf(stderr, "error %d: %s\n", status, mpt_last_error());
  exit(1);
}

static int64_t bytes_of(const mpt_tensor *t) {
  int64_t bytes = t->dtype == MPT_INT64 ? 8 : t->dtype == MPT_FLOAT16 ? 2 : 4;
  for (int64_t d = 0; d < t->rank; ++d)
    bytes *= t->shape[d];
  return bytes;
}

int main(int argc, char **argv) {
  static float x[8 * 5], target[8 * 37];
  static char kept[64][4096];
  int64_t x_shape[] = {8, 5}, target_shape[] = {8, 37};
  mpt_tensor inputs[] = {{"x", MPT_FLOAT32, 2, x_shape, x}, {"target", MPT_FLOAT32, 2, target_shape, target}};
  mpt_model *model;
  mpt_trainer *trainer;
  check(mpt_model_load(argv[argc - 1], &model));
  check(mpt_trainer_create(model, NULL, &trainer));
  for (int i = 0; i < 8 * 5; ++i)
    x[i] = (float)(i % 7) - 3.0f;
  for (int step = 0; step < 4; ++step) {
    mpt_tensor tensor;
    mpt_role role;
    for (int64_t i = 0; mpt_trainer_state(trainer, i, &tensor, &role) == MPT_OK; ++i)
      memcpy(kept[i], tensor.data, (size_t)bytes_of(&tensor));
    mpt_metrics metrics;
    x[11] = step == 1 ? INFINITY : 1.0f;
    check(mpt_trainer_step(trainer, inputs, 2, &metrics));
    printf("%d %g\n", metrics.skipped, metrics.loss_scale);
    for (int64_t i = 0; mpt_trainer_state(trainer, i, &tensor, &role) == MPT_OK; ++i)
      if (metrics.skipped && role != MPT_ROLE_SCALE && role != MPT_ROLE_RNG &&
          memcmp(kept[i], tensor.data, (size_t)bytes_of(&tensor)) != 0) {
        printf("a skipped step moved %s\n", tensor.name);
        return 1;
      }
  }
  mpt_trainer_destroy(trainer);
  mpt_model_destroy(model);
  return 0;
}
