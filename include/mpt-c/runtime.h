// SPDX-License-Identifier: Apache-2.0
/* Using a compiled model: load it, train it, read and write its parameters, save and restore its state.
 *
 * Plain C. Every call that can fail returns an mpt_status; mpt_last_error() then describes the failure of the calling
 * thread's last failed call. No call exits, aborts or throws. Handles are owned by the caller and released by the
 * matching destroy call, which accepts NULL. Text and tensors handed out belong to the handle they came from.
 *
 * Threads: a model may be shared by any number of threads. A trainer may be used by one thread at a time; different
 * trainers are independent, even when they share a model. Results depend on the thread count of the trainer's options
 * and the processor alone.
 *
 * Devices: libmpt_rt runs models that were compiled for the CPU, libmpt_rt_cuda those compiled for CUDA, through the
 * same calls. On CUDA a call that runs a function starts it and returns; calls that read results wait for it. */
#ifndef MPT_C_RUNTIME_H
#define MPT_C_RUNTIME_H

#include "mpt-c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mpt_status {
  MPT_OK = 0,
  MPT_INVALID_ARGUMENT = 1, /* a null handle, an input that does not fit the model, a name it does not have */
  MPT_NOT_FOUND = 2,        /* no such file, function or tensor */
  MPT_IO_ERROR = 3,         /* the operating system refused a read or a write */
  MPT_BAD_FILE = 4,         /* a file that is truncated or not of the format it claims */
  MPT_INCOMPATIBLE = 5,     /* other ABI version, missing processor feature, state of another model */
  MPT_UNSUPPORTED = 6,      /* a case that the library routines do not cover */
  MPT_OUT_OF_MEMORY = 7,
  MPT_INTERNAL = 8,
  MPT_NOT_FINITE = 9, /* only from libraries compiled with --debug-nonfinite: a run met infinities or NaN */
  MPT_STALLED = 10,   /* steps are skipped one after the other, and the loss scale does not fall any more */
  MPT_PEER_LOST = 11  /* a rank of the world died, hung or was cut off; the text has its number (world.h) */
} mpt_status;

typedef struct mpt_module_desc mpt_module_desc; /* abi.h */
struct mpt_world;                               /* world.h */
typedef struct mpt_model mpt_model;             /* a loaded library; holds no state */
typedef struct mpt_trainer mpt_trainer;         /* one set of parameters, optimizer states and counters, and scratch */

/* A dense row-major tensor. As an input, `data` is only read and need not outlive the call. */
typedef struct mpt_tensor {
  const char *name;
  int32_t dtype; /* mpt_dtype */
  int32_t rank;
  const int64_t *shape; /* `rank` extents; may be NULL when rank is 0 */
  void *data;
} mpt_tensor;

/* The text for this thread's last failed call; "" before the first. Valid until the thread's next failed call. */
const char *mpt_last_error(void);

/* ---- models ----------------------------------------------------------------------------------------------------- */

/* `path` is an emitted lib<name>.so, or a directory that holds exactly one. Loads a copy of the file as it is now,
 * and the weights file beside it as it is now: compiling into the same directory later changes neither this
 * model nor its trainers, and loading again gives the new one. */
mpt_status mpt_model_load(const char *path, mpt_model **out);

/* A model that is linked into the program (`extern const mpt_module_desc mpt_module`). `directory` is where its
 * <name>.safetensors lies; NULL means the current one. The description must outlive the model. */
mpt_status mpt_model_from_desc(const mpt_module_desc *desc, const char *directory, mpt_model **out);

/* Trainers keep the model alive: destroying it first is fine. */
void mpt_model_destroy(mpt_model *model);

const char *mpt_model_name(const mpt_model *model);
const char *mpt_model_manifest(const mpt_model *model); /* JSON */
const char *mpt_model_target(const mpt_model *model);   /* "cpu" or "cuda" */

/* Functions are "step" and, where the model has them, "gradients", "evaluate", "predict", "accumulate", "initialize"; a
 * model with several training algorithms has a function for each instead of "step", of the algorithm's name. In a
 * library of several sizes (the manifest's "sizes") these are functions of the first size, "step[batch=8]" is one of
 * another size; a call by the short name runs the size whose shapes its inputs have. The i-th input or output's name,
 * dtype and shape go to `out`, whose data is NULL; MPT_NOT_FOUND past the last one. */
mpt_status mpt_model_input(const mpt_model *model, const char *function, int64_t i, mpt_tensor *out);
mpt_status mpt_model_output(const mpt_model *model, const char *function, int64_t i, mpt_tensor *out);

/* ---- training --------------------------------------------------------------------------------------------------- */

/* A setting of a runtime library by name, as text. */
typedef struct mpt_option {
  const char *key, *value;
} mpt_option;

/* Zero-initialize, then set the fields that differ. */
typedef struct mpt_trainer_options {
  int32_t threads;  /* 0: all that OpenMP offers (OMP_NUM_THREADS) */
  int32_t set_seed; /* non-zero: `seed` replaces the dropout seed of the weights file */
  uint64_t seed;
  const char *weights; /* initial values; NULL: <name>.safetensors beside the library, as it was when it was loaded */
  int32_t device;      /* CUDA: number of the device, as the driver counts them */
  /* `num_options` further options, read when the trainer is created. "profile": rows of a table of calls on standard
   * error when the trainer is destroyed (0: none; 1 stands for 40). "skip_limit": after how many steps that were
   * skipped in a row, without a fall of the loss scale, a step returns MPT_STALLED (64; 0: never). docs/cuda.md lists
   * CUDA's options. One that the runtime does not have fails with a list of the options it has. */
  const mpt_option *options;
  int64_t num_options;
  /* world.h; NULL: this process alone. For libraries compiled with --replicas. Creating, loading and saving are then
   * collective, and a step takes the rows of this process's replicas: rank r of N has replicas r V/N to (r+1) V/N - 1.
   */
  struct mpt_world *world;
} mpt_trainer_options;

/* Results of a call. A field that the function does not compute, because it has no output of that role, is NaN
 * (loss, grad_norm), 0 (skipped), 1 (loss_scale). A step computes grad_norm where it clips by it. */
typedef struct mpt_metrics {
  double loss;
  double loss_scale; /* the scale that this call multiplied the loss with */
  double grad_norm;  /* global L2 norm of the unscaled gradient, before clipping */
  int32_t skipped;   /* a gradient was not finite: its parameter and optimizer states did not change, and, but under a
                      * finite check by parameter, no others did */
} mpt_metrics;

typedef struct mpt_memory {
  int64_t state_bytes;   /* the persistent block: parameters, masters, optimizer states, statistics, counters */
  int64_t arena_bytes;   /* scratch that calls share; grows at the first call of a function that needs more */
  int64_t output_bytes;  /* results kept for mpt_trainer_output */
  int64_t staging_bytes; /* copies of unaligned inputs, and scratch of library calls */
} mpt_memory;

/* `options` may be NULL. Reads the initial weights. */
mpt_status mpt_trainer_create(mpt_model *model, const mpt_trainer_options *options, mpt_trainer **out);
void mpt_trainer_destroy(mpt_trainer *trainer);

/* The state of a new trainer again: initial weights, optimizer states and counters. A model whose file has
 * initialization graphs (TrainingInfoProto) then runs them, as its function "initialize": the initializers that they
 * bind get the values that they compute. */
mpt_status mpt_trainer_reset(mpt_trainer *trainer);

/* Runs a function on `inputs`, which are matched by name and checked against the model. An input named "learning_rate"
 * may be left out: it then has the value last set, or the manifest's "learning_rate" (its own, or its "optimizer"'s).
 * Inputs that are not aligned to 64 bytes are copied. `metrics` may be NULL. A step whose gradient is not finite
 * succeeds and reports `skipped`.
 *
 * MPT_STALLED: this step and the ones before it, "skip_limit" in a row, were skipped, and the loss scale stayed where
 * it is, because it is fixed, at its smallest, or chosen a layer. mpt_last_error() names the input, the state or the
 * parameter's gradient that is not finite; to find the latter, "gradients" runs where the model has it. Metrics are
 * there, and nothing that is not finite has changed a state: the next step may be tried, and after as many more the
 * call fails again.
 *
 * On CUDA inputs may lie in host memory or on the trainer's device (written before the call as far as that device's
 * streams are concerned: synchronize them); host memory may be reused at once. Without `metrics` nothing waits for the
 * device; mpt_trainer_metrics reads them later (MPT_STALLED, too, then comes from there). A failure on the device is
 * reported by the next call that waits.
 *
 * A library compiled with --debug-nonfinite refuses inputs and parameters that are not finite, and a run that is
 * skipped or whose results are not finite returns MPT_NOT_FINITE once it is over: mpt_last_error() names the first node
 * whose value was not finite, the call, the value's range and a remedy. Metrics and outputs are there all the same,
 * and the state is as the run left it. */
mpt_status mpt_trainer_step(mpt_trainer *trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics);
/* One unscaled FP32 gradient a parameter, as outputs of "gradients"; changes no state but random counters. */
mpt_status mpt_trainer_gradients(mpt_trainer *trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics);
mpt_status mpt_trainer_evaluate(mpt_trainer *trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics);
mpt_status mpt_trainer_run(mpt_trainer *trainer, const char *function, const mpt_tensor *inputs, int64_t count,
                           mpt_metrics *metrics);

/* A result of the last run of `function`, by name or number; valid until it runs again. */
mpt_status mpt_trainer_output(mpt_trainer *trainer, const char *function, const char *name, mpt_tensor *out);
mpt_status mpt_trainer_output_at(mpt_trainer *trainer, const char *function, int64_t i, mpt_tensor *out);

/* The same without waiting or copying: `data` is in the memory of the trainer's device. */
mpt_status mpt_trainer_device_output(mpt_trainer *trainer, const char *function, int64_t i, mpt_tensor *out);
/* The metrics of the last run of `function`. */
mpt_status mpt_trainer_metrics(mpt_trainer *trainer, const char *function, mpt_metrics *metrics);
/* Waits until everything that was started is done. */
mpt_status mpt_trainer_synchronize(mpt_trainer *trainer);

/* Seconds that a run of `function` takes on the device, the mean of `runs` (1 to 1000) in a row behind one that does
 * not count. On CUDA they are one graph, so that the times of launches do not count, and inputs are on the device
 * before. On the CPU a trainer of one thread counts that thread's time, others wall time. Each run changes state and
 * results as mpt_trainer_run does. Not for a step with replicas. */
mpt_status mpt_trainer_time(mpt_trainer *trainer, const char *function, const mpt_tensor *inputs, int64_t count,
                            int64_t runs, double *seconds);
/* The trainer's device: the processor's or GPU's own name, and the versions of the libraries that it computes with,
 * as in "cuBLASLt 130100, cuDNN 91900" ("" where there are none). Valid while the trainer lives. */
mpt_status mpt_trainer_device(mpt_trainer *trainer, const char **name, const char **libraries);

/* With option "profile": the tables of calls so far, of each function that ran more than once, as the trainer's end
 * prints them. Empty without the option. The text lives until the next call of this function or the trainer's end. */
mpt_status mpt_trainer_profile(mpt_trainer *trainer, const char **text);

mpt_status mpt_trainer_set_learning_rate(mpt_trainer *trainer, double learning_rate);
/* The rate that is in force: the one last set, or the manifest's. MPT_NOT_FOUND where there is none yet. */
mpt_status mpt_trainer_learning_rate(const mpt_trainer *trainer, double *out);
mpt_status mpt_trainer_memory(const mpt_trainer *trainer, mpt_memory *out);

/* ---- parameters and state --------------------------------------------------------------------------------------- */

/* The i-th trained parameter: its name, shape and the type it is stored in, with `data` in the state block (no copy; do
 * not write to it), which is in the device's memory. MPT_NOT_FOUND past the last one. */
mpt_status mpt_trainer_parameter(mpt_trainer *trainer, int64_t i, mpt_tensor *out);
/* The same for every tensor of the state block, frozen parameters among them; `role` may be NULL. `data` is NULL for a
 * tensor that ranks divide among them (--shard-optimizer): mpt_trainer_read and mpt_trainer_get collect it, and are
 * collective then. */
mpt_status mpt_trainer_state(mpt_trainer *trainer, int64_t i, mpt_tensor *out, mpt_role *role);

/* The bytes of the i-th tensor of the state, in the type it is stored in, to host memory. */
mpt_status mpt_trainer_read(mpt_trainer *trainer, int64_t i, void *data, int64_t bytes);
/* Writes them. This tensor alone: a parameter's master has a number of its own. */
mpt_status mpt_trainer_write(mpt_trainer *trainer, int64_t i, const void *data, int64_t bytes);

/* Reads a parameter or any tensor of the state as FP32 (from the master where there is one) into `data`, `count`
 * values; integers and FP64 are converted to the nearest value. */
mpt_status mpt_trainer_get(mpt_trainer *trainer, const char *name, float *data, int64_t count);
/* Writes one: for a parameter both its master and its narrow copy, rounded to nearest even. Integers are truncated. */
mpt_status mpt_trainer_set(mpt_trainer *trainer, const char *name, const float *data, int64_t count);

/* The whole state as one safetensors file. Saving is atomic: an existing file is replaced once the new one is on disk,
 * or stays as it was. Loading refuses another model's state and leaves the trainer as it was on failure; a run that
 * continues from a saved state is bit-equal to one that was not interrupted. */
mpt_status mpt_trainer_save(const mpt_trainer *trainer, const char *path);
/* The same where ranks have divided the state (--shard-optimizer), and without collecting it anywhere: collective, each
 * rank writes its shards beside `path`, as `path`.<16 digits>.<rank>, and rank 0 the index that names them, once all
 * are on disk. The folder is one that all ranks see. Loading an index reads its shards, for any number of processes. */
mpt_status mpt_trainer_save_sharded(const mpt_trainer *trainer, const char *path);
mpt_status mpt_trainer_load(mpt_trainer *trainer, const char *path);
/* A checkpoint that ONNX Runtime Training 1.19 loads (CheckpointState::LoadCheckpoint), written as atomically:
 * parameters in FP32 under their names, from the masters where there are any, frozen ones and running statistics; with
 * `include_optimizer_state` also Adam's or AdamW's moments and the number of steps, other optimizers are refused with
 * MPT_INCOMPATIBLE. At most 2 GiB, the format's limit. It has no loss scale and no random state: a run goes on from it
 * there, or here by `mpt-opt --checkpoint`, but is not bitwise identical. Collective where ranks divide the state. */
mpt_status mpt_trainer_save_onnxruntime(mpt_trainer *trainer, const char *path, int32_t include_optimizer_state);
/* The .onnx file that the model was compiled from, with the values of parameters and statistics as they are now and
 * nothing else changed (docs/onnx.md): with `averaged`, the averages of --ema. It is copied from <name>.template beside
 * the library, MPT_NOT_FOUND without one. As atomic; data files of an existing model stay until the new one is there.
 * Collective where ranks divide the state. */
mpt_status mpt_trainer_save_onnx(mpt_trainer *trainer, const char *path, int32_t averaged);
/* The same from a template and a saved state, without a trainer. */
mpt_status mpt_template_save_onnx(const char *form, const char *state, const char *path, int32_t averaged);

#ifdef __cplusplus
}
#endif
#endif
