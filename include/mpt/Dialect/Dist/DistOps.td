// SPDX-License-Identifier: Apache-2.0
// Attributes that MLIR's dialect `shard` does not have: how the replicas of a training step take their inputs.
#ifndef MPT_DIALECT_DIST_DISTOPS_TD
#define MPT_DIALECT_DIST_DISTOPS_TD

include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::mpt::dist";
  let summary = "replicas of a training step: what each of them reads";
  let description = [{
    A distributed step is one program that every replica runs (SPMD). Collectives are those of MLIR's dialect `shard`: the
    replicas are the grid `@replicas`, one axis of as many devices as there are replicas, or `?` where each process brings one.
    `shard.all_reduce` and `shard.reduce_scatter` have all that a step needs: a reduction, a group, and accumulation in the
    type of the result; `shard.all_gather` and `shard.all_slice` go between a tensor and its shards.

    This dialect has no operation. Its attributes say of an argument or a state what `shard` says of global tensors alone, or not at all:

    | attribute | on | says |
    |---|---|---|
    | `dist.split` | argument | every replica has rows of its own: the global batch is one behind the other in dimension 0 |
    | `dist.phase` | function | of a step that is cut where its replicas meet: its place among the parts, from 1 |
    | `dist.shard` = c | `train.state` | replica k of V keeps elements [k c, (k + 1) c) of the tensor, row-major; zeros follow its last one. Reads and writes have the type of a shard, `tensor<c x ...>` |

    `shard.process_linear_index` gives a number of type `index`; streams of random numbers need a tensor of 64 bits.
  }];
  let discardableAttrs = (ins "::mlir::UnitAttr":$split, "::mlir::IntegerAttr":$phase, "::mlir::IntegerAttr":$shard);
}

#endif
