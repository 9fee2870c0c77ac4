// SPDX-License-Identifier: Apache-2.0
/* libmpt_compiler from C: a compilation, a refused one, and several at once. */
#include "mpt-c/compiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures = 0;

static void expect(int ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "expected %s\n", what);
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  }
}

/* The file's text, or NULL. */
static char *readFile(const char *path) {
  FILE *file = fopen(path, "rb");
  char *text = calloc(1, 1 << 20);
  if (file) {
    if (fread(text, 1, (1 << 20) - 1, file) == 0)
      expect(0, "the output to have text");
    fclose(file);
    return text;
  }
  free(text);
  return NULL;
}

/* Compiles the model to MLIR in a file of its own; `argument` is the optimizer. */
static void *compile(void *argument) {
  char path[64] = "/tmp/mpt-compiler-test-XXXXXX", output[80], optimizer[64];
  int handle = mkstemp(path);
  expect(handle >= 0, "a temporary file");
  close(handle);
  snprintf(output, sizeof output, "-o=%s", path);
  snprintf(optimizer, sizeof optimizer, "--optimizer=%s", (const char *)argument);
  const char *arguments[] = {MODEL, "--loss=mse", optimizer, "--to=training", "--emit=mlir", output};
  char *diagnostics = NULL;
  int32_t status = mpt_compiler_run(6, arguments, &diagnostics);
  expect(status == 0, "the model to compile");
  expect(diagnostics && !*diagnostics, "no diagnostics");
  if (status)
    fprintf(stderr, "%s", diagnostics);
  mpt_compiler_free_text(diagnostics);
  char *text = readFile(path), update[64];
  snprintf(update, sizeof update, "mpt.%s", (const char *)argument);
  expect(text && strstr(text, "train.gradient @w"), "a gradient of w");
  expect(text && strstr(text, update), "the update that was asked for");
  free(text);
  unlink(path);
  return NULL;
}

int main(void) {
  expect(strcmp(mpt_compiler_version(), MPT_VERSION) == 0, "the version of the build");

  compile("sgd");

  char *diagnostics = NULL;
  const char *unknown[] = {MODEL, "--loss=mse", "--policy=half", "-o=/nonexistent"};
  expect(mpt_compiler_run(4, unknown, &diagnostics) != 0, "an unknown policy to be refused");
  expect(diagnostics && strstr(diagnostics, "half"), "the diagnostics to name it");
  mpt_compiler_free_text(diagnostics);
  const char *missing[] = {"/nonexistent/model.onnx"};
  diagnostics = NULL;
  expect(mpt_compiler_run(1, missing, &diagnostics) != 0, "a missing file to be refused");
  expect(diagnostics && strstr(diagnostics, "/nonexistent/model.onnx"), "the diagnostics to name the file");
  mpt_compiler_free_text(diagnostics);
  expect(mpt_compiler_run(1, missing, NULL) != 0, "diagnostics to be optional");
  expect(mpt_compiler_run(0, NULL, NULL) != 0, "no arguments to be refused");
  const char *const gap[] = {"m.onnx", NULL, "--quiet"};
  expect(mpt_compiler_run(3, gap, &diagnostics) != 0 && strstr(diagnostics, "got NULL after 1"),
         "a NULL to be refused");
  mpt_compiler_free_text(diagnostics);
  expect(mpt_compiler_run(2, NULL, NULL) != 0 && mpt_compiler_run(-1, gap, NULL) != 0, "bad counts to be refused");

  const char *optimizers[] = {"sgd", "adam", "adagrad"};
  pthread_t threads[3];
  for (int i = 0; i < 3; ++i)
    expect(pthread_create(&threads[i], NULL, compile, (void *)optimizers[i]) == 0, "a thread");
  for (int i = 0; i < 3; ++i)
    pthread_join(threads[i], NULL);

  printf("compiler: %s\n", failures ? "FAILED" : "passed");
  return failures != 0;
}
