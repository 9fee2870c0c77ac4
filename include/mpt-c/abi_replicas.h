// SPDX-License-Identifier: Apache-2.0
/* What code emitted for CUDA calls beside mpt-c/abi_cuda.h where a step has replicas. */
#ifndef MPT_C_ABI_REPLICAS_H
#define MPT_C_ABI_REPLICAS_H

#include "mpt-c/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As mpt_rt_ready: output `output` of "replica" holds its values once the device has done what was put on its stream so
 * far. MPT_OK. */
int32_t mpt_cuda_ready(mpt_exec *exec, int64_t output);

#ifdef __cplusplus
}
#endif
#endif
