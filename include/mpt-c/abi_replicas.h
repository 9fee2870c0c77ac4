// SPDX-License-Identifier: Apache-2.0
/* Calls of a step with replicas, beside mpt-c/abi.h and mpt-c/abi_cuda.h. */
#ifndef MPT_C_ABI_REPLICAS_H
#define MPT_C_ABI_REPLICAS_H

#include "mpt-c/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On CUDA, as mpt_rt_ready: output `output` of "replica" holds its values once the device has done the work that is on
 * its stream so far. MPT_OK. */
int32_t mpt_cuda_ready(mpt_exec *exec, int64_t output);

#ifdef __cplusplus
}
#endif
#endif
