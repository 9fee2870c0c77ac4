// SPDX-License-Identifier: Apache-2.0
/* Element types and tensor roles that the runtime API, emitted libraries and state files share. */
#ifndef MPT_C_TYPES_H
#define MPT_C_TYPES_H

#include <stdint.h>

/* Element types, numbered as in ONNX's TensorProto.DataType. */
typedef enum mpt_dtype {
  MPT_FLOAT32 = 1,
  MPT_UINT8 = 2,
  MPT_INT8 = 3,
  MPT_UINT16 = 4,
  MPT_INT16 = 5,
  MPT_INT32 = 6,
  MPT_INT64 = 7,
  MPT_BOOL = 9, /* one byte, 0 or 1 */
  MPT_FLOAT16 = 10,
  MPT_FLOAT64 = 11,
  MPT_UINT32 = 12,
  MPT_UINT64 = 13,
  MPT_BFLOAT16 = 16,
  MPT_FLOAT8E4M3FN = 17,
  MPT_FLOAT8E5M2 = 19
} mpt_dtype;

/* What a tensor of the persistent state block is for. */
typedef enum mpt_role {
  MPT_ROLE_PARAMETER = 0,   /* trained; stored in the type the step computes with */
  MPT_ROLE_MASTER = 1,      /* wide copy of the parameter named by `of` */
  MPT_ROLE_SLOT = 2,        /* optimizer slot (momentum, first or second moment) of the parameter named by `of` */
  MPT_ROLE_STATISTIC = 3,   /* batch-norm running mean or variance */
  MPT_ROLE_SCALE = 4,       /* loss scale and its counters */
  MPT_ROLE_RNG = 5,         /* seed and counter of the dropout generator */
  MPT_ROLE_COUNTER = 6,     /* step counter */
  MPT_ROLE_CONSTANT = 7,    /* weights that are not trained */
  MPT_ROLE_ACCUMULATOR = 8, /* gradient accumulated over micro-steps, of the parameter named by `of` */
  MPT_ROLE_INPUT = 9,       /* function argument (not in the state block) */
  MPT_ROLE_OUTPUT = 10,     /* function result (not in the state block) */
  MPT_ROLE_FROZEN = 11      /* parameter that no step changes (--freeze) */
} mpt_role;

/* Names of what a step with replicas has beside the model's own inputs and outputs (mpt_function_desc). */
#define MPT_NAME_REPLICA "replica.number"
#define MPT_NAME_REPLICAS "replica.count"
#define MPT_NAME_SUM "replica.sum."
#define MPT_NAME_MAX "replica.max."

#endif
