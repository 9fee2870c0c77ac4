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

/* The role of a tensor of the persistent state block. */
typedef enum mpt_role {
  MPT_ROLE_PARAMETER = 0,   /* trained; stored in the type the step computes with */
  MPT_ROLE_MASTER = 1,      /* wide copy of the parameter named by `of` */
  MPT_ROLE_SLOT = 2,        /* optimizer state (momentum, first or second moment) of the parameter named by `of` */
  MPT_ROLE_STATISTIC = 3,   /* batch-norm running mean or variance */
  MPT_ROLE_SCALE = 4,       /* loss scale and its counters */
  MPT_ROLE_RNG = 5,         /* seed and counter of the dropout generator */
  MPT_ROLE_COUNTER = 6,     /* step counter */
  MPT_ROLE_CONSTANT = 7,    /* weights that are not trained */
  MPT_ROLE_ACCUMULATOR = 8, /* gradient accumulated over micro-steps, of the parameter named by `of` */
  MPT_ROLE_INPUT = 9,       /* function argument (not in the state block) */
  MPT_ROLE_OUTPUT = 10,     /* function result (not in the state block) */
  MPT_ROLE_FROZEN = 11,     /* parameter that no step changes (--freeze) */
  /* Function results that mpt_metrics has. */
  MPT_ROLE_LOSS = 12,
  MPT_ROLE_LOSS_SCALE = 13,
  MPT_ROLE_GRAD_NORM = 14,
  MPT_ROLE_SKIPPED = 15,
  /* Of a step with replicas (mpt_function_desc): arguments that the runtime gives, and values that go from function to
   * function under one name: replicas add them, or take the largest, or keep each its own. */
  MPT_ROLE_REPLICA_NUMBER = 16, /* int64, from 0 */
  MPT_ROLE_REPLICA_COUNT = 17,  /* float32, where it is not fixed */
  MPT_ROLE_SUM = 18,
  MPT_ROLE_MAX = 19,
  MPT_ROLE_SCATTER = 20,
  MPT_ROLE_GATHER = 21,
  MPT_ROLE_KEPT = 22 /* of any type; the runtime keeps it for each local replica */
} mpt_role;

#endif
