// SPDX-License-Identifier: Apache-2.0
/* Runs one step of a model that is linked into this program. */
#include "mpt-c/runtime.h"
#include "toy.h"

#include <stdio.h>

static void print(const char *name, const float *values, int count) {
  printf("%s", name);
  for (int i = 0; i < count; ++i)
    printf(" %g", values[i]);
  printf("\n");
}

int main(int argc, char **argv) {
  mpt_model *model = NULL;
  mpt_trainer *trainer = NULL;
  float x[6] = {0, 1, 2, 3, 4, 5}, w[12];
  int64_t shape[2] = {2, 3};
  mpt_tensor input = {"x", MPT_FLOAT32, 2, shape, x}, y;
  if (argc < 2 || mpt_model_from_desc(&mpt_module, argv[1], &model) || mpt_trainer_create(model, NULL, &trainer) ||
      mpt_trainer_step(trainer, &input, 1, NULL) || mpt_trainer_output(trainer, "step", "y", &y) ||
      mpt_trainer_get(trainer, "w", w, 12)) {
    printf("failed: %s\n", mpt_last_error());
    return 1;
  }
  printf("model %s\n", mpt_model_name(model));
  print("y", (const float *)y.data, 8);
  print("w", w, 12);
  mpt_trainer_destroy(trainer);
  mpt_model_destroy(model);
  return 0;
}
