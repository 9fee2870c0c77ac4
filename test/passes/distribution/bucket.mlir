// RUN: mpt-opt %s --distribution-bucket=first-bytes=40 | FileCheck %s
// RUN: mpt-opt %s --distribution-bucket | FileCheck %s --check-prefix=SHARDS
// RUN: mpt-opt %s --distribution-bucket="first-bytes=1 bytes=1" | FileCheck %s --check-prefix=SINGLE

shard.grid @replicas(shape = 4)

// Two sums make the first bucket; the largest stays single; the last bucket holds the rest. Narrow values travel so. A reader of a
// member moves behind its bucket.
// CHECK-LABEL: func.func @step
// CHECK-DAG: %[[A:.*]] = mpt.reshape %arg0 : (tensor<2x3xf32>) -> tensor<6xf32>
// CHECK: %[[BOTH:.*]] = mpt.concat %[[A]], %arg1 {axis = 0 : i64} : (tensor<6xf32>, tensor<4xf32>) -> tensor<10xf32>
// CHECK: %[[SUMS:.*]] = shard.all_reduce %[[BOTH]] on @replicas grid_axes = [0] : tensor<10xf32> -> tensor<10xf32>
// CHECK: shard.all_reduce %arg2 on @replicas grid_axes = [0] reduction = max
// CHECK: shard.all_reduce %{{.*}} on @replicas grid_axes = [0] : tensor<5xf32> -> tensor<5xf32>
// CHECK: shard.all_reduce %{{.*}} : tensor<8xbf16> -> tensor<8xf32>
// SINGLE-LABEL: func.func @step
// SINGLE-NOT: mpt.concat
// SINGLE-COUNT-6: shard.all_reduce
func.func @step(%a: tensor<2x3xf32> {dist.split}, %b: tensor<4xf32> {dist.split}, %c: tensor<5xf32> {dist.split}, %d: tensor<7xbf16> {dist.split}, %e: tensor<1xbf16> {dist.split}) -> (tensor<2x3xf32>, tensor<4xf32>, tensor<5xf32>, tensor<5xf32>, tensor<7xf32>, tensor<1xf32>) {
  %0 = shard.all_reduce %a on @replicas grid_axes = [0] : tensor<2x3xf32> -> tensor<2x3xf32>
  %1 = mpt.neg %0 : tensor<2x3xf32>
  %2 = shard.all_reduce %b on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %3 = shard.all_reduce %c on @replicas grid_axes = [0] reduction = max : tensor<5xf32> -> tensor<5xf32>
  %4 = shard.all_reduce %c on @replicas grid_axes = [0] : tensor<5xf32> -> tensor<5xf32>
  %5 = shard.all_reduce %d on @replicas grid_axes = [0] : tensor<7xbf16> -> tensor<7xf32>
  %6 = shard.all_reduce %e on @replicas grid_axes = [0] : tensor<1xbf16> -> tensor<1xf32>
  return %1, %2, %3, %4, %5, %6 : tensor<2x3xf32>, tensor<4xf32>, tensor<5xf32>, tensor<5xf32>, tensor<7xf32>, tensor<1xf32>
}

// Without collectives nothing happens.
// CHECK-LABEL: func.func @alone
// CHECK-NOT: mpt.concat
func.func @alone(%a: tensor<4xf32>) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}

// Sums that are scattered, and shards that are gathered, lie side by side. Gathered values wait for scattered ones,
// and types differ: these are no family.
// SHARDS-LABEL: func.func @shards
// SHARDS: %[[ROWS:.*]] = mpt.concat %{{.*}}, %{{.*}} {axis = 1 : i64} : (tensor<4x16xf32>, tensor<4x32xf32>) -> tensor<4x48xf32>
// SHARDS: %[[ROW:.*]] = shard.reduce_scatter %[[ROWS]] on @replicas grid_axes = [0] {{.*}}scatter_axis = 0 : tensor<4x48xf32> -> tensor<1x48xf32>
// SHARDS-DAG: mpt.slice %[[ROW]] {sizes = array<i64: 1, 16>, starts = array<i64: 0, 0>
// SHARDS-DAG: mpt.slice %[[ROW]] {sizes = array<i64: 1, 32>, starts = array<i64: 0, 16>
// SHARDS: shard.all_gather %{{.*}} : tensor<1x48xf16> -> tensor<4x48xf16>
// SHARDS: shard.all_gather %{{.*}} : tensor<1x16xf32> -> tensor<4x16xf32>
func.func @shards(%a: tensor<4x16xf32> {dist.split}, %b: tensor<4x32xf32> {dist.split}) -> (tensor<4x16xf16>, tensor<4x32xf16>, tensor<4x16xf32>) {
  %0 = shard.reduce_scatter %a on @replicas grid_axes = [0] scatter_axis = 0 : tensor<4x16xf32> -> tensor<1x16xf32>
  %1 = shard.reduce_scatter %b on @replicas grid_axes = [0] scatter_axis = 0 : tensor<4x32xf32> -> tensor<1x32xf32>
  %2 = mpt.cast %0 : tensor<1x16xf32> to tensor<1x16xf16>
  %3 = mpt.cast %1 : tensor<1x32xf32> to tensor<1x32xf16>
  %4 = shard.all_gather %2 on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x16xf16> -> tensor<4x16xf16>
  %5 = shard.all_gather %3 on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x32xf16> -> tensor<4x32xf16>
  %6 = shard.all_gather %0 on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x16xf32> -> tensor<4x16xf32>
  return %4, %5, %6 : tensor<4x16xf16>, tensor<4x32xf16>, tensor<4x16xf32>
}

// A sum that other collectives wait for does not travel with one that none waits for.
// CHECK-LABEL: func.func @awaited
// CHECK: %[[FIRST:.*]] = shard.all_reduce %{{.*}} on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
// CHECK: shard.all_reduce %{{.*}} : tensor<6xf32> -> tensor<6xf32>
// CHECK: mpt.mul %[[FIRST]]
// CHECK: shard.all_reduce
func.func @awaited(%a: tensor<4xf32> {dist.split}, %b: tensor<6xf32> {dist.split}) -> (tensor<4xf32>, tensor<6xf32>) {
  %0 = shard.all_reduce %a on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %1 = shard.all_reduce %b on @replicas grid_axes = [0] : tensor<6xf32> -> tensor<6xf32>
  %2 = mpt.mul %0, %a : tensor<4xf32>
  %3 = shard.all_reduce %2 on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %3, %1 : tensor<4xf32>, tensor<6xf32>
}

// A sum that the update's shards wait for, as sums for clipping do, does not travel with one that the backward pass waits for: that one
// still has the loss scale.
// CHECK-LABEL: func.func @shards_wait
// CHECK: shard.all_reduce %{{.*}} : tensor<4xf32> -> tensor<4xf32>
// CHECK: shard.all_reduce %{{.*}} : tensor<6xf32> -> tensor<6xf32>
// CHECK: shard.reduce_scatter
// CHECK: shard.all_gather
func.func @shards_wait(%a: tensor<4xf32> {dist.split}, %b: tensor<6xf32> {dist.split}, %c: tensor<4x4xf32> {dist.split}) -> (tensor<4x4xf32>, tensor<6xf32>) {
  %0 = shard.all_reduce %a on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  %1 = shard.all_reduce %b on @replicas grid_axes = [0] : tensor<6xf32> -> tensor<6xf32>
  %rows = mpt.broadcast %0 {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<4x4xf32>
  %own = mpt.mul %rows, %c : tensor<4x4xf32>
  %mine = shard.reduce_scatter %own on @replicas grid_axes = [0] scatter_axis = 0 : tensor<4x4xf32> -> tensor<1x4xf32>
  %norm = mpt.reduce sum %1 {axes = array<i64: 0>} : (tensor<6xf32>) -> tensor<f32>
  %factor = mpt.broadcast %norm {dims = array<i64>} : (tensor<f32>) -> tensor<1x4xf32>
  %clipped = mpt.mul %mine, %factor : tensor<1x4xf32>
  %next = shard.all_gather %clipped on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x4xf32> -> tensor<4x4xf32>
  return %next, %1 : tensor<4x4xf32>, tensor<6xf32>
}
