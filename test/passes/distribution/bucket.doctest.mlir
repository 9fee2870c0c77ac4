// RUN: mpt-opt %s --distribution-bucket | FileCheck %s
// The example of docs/generated/passes.md: two sums become one collective.
// CHECK: mpt.concat
// CHECK: shard.all_reduce %{{.*}} : tensor<10xf32> -> tensor<10xf32>
// CHECK-NOT: shard.all_reduce
shard.grid @replicas(shape = 2)
func.func @f(%0: tensor<2x3xf32>, %1: tensor<4xf32>) -> (tensor<2x3xf32>, tensor<4xf32>) {
  %a = shard.all_reduce %0 on @replicas grid_axes = [0] : tensor<2x3xf32> -> tensor<2x3xf32>
  %b = shard.all_reduce %1 on @replicas grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %a, %b : tensor<2x3xf32>, tensor<4xf32>
}
