// SPDX-License-Identifier: Apache-2.0
// All families of the core dialect.
#ifndef MPT_DIALECT_MPT_MPTOPS_TD
#define MPT_DIALECT_MPT_MPTOPS_TD

include "mpt/Dialect/MPT/CastOps.td"
include "mpt/Dialect/MPT/ConvOps.td"
include "mpt/Dialect/MPT/ElementwiseOps.td"
include "mpt/Dialect/MPT/FusionOps.td"
include "mpt/Dialect/MPT/GatherOps.td"
include "mpt/Dialect/MPT/LossOps.td"
include "mpt/Dialect/MPT/MatMulOps.td"
include "mpt/Dialect/MPT/NormOps.td"
include "mpt/Dialect/MPT/OptimizerOps.td"
include "mpt/Dialect/MPT/PoolOps.td"
include "mpt/Dialect/MPT/RandomOps.td"
include "mpt/Dialect/MPT/RecurrentOps.td"
include "mpt/Dialect/MPT/ReduceOps.td"
include "mpt/Dialect/MPT/ResizeOps.td"
include "mpt/Dialect/MPT/ScatterOps.td"
include "mpt/Dialect/MPT/ShapeOps.td"

#endif
