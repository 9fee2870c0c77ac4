// RUN: mpt-opt %s --distribution-sync-batch-norm=replicas=2 | FileCheck %s
// The example of docs/generated/passes.md: means and variances of two replicas' rows, and the mean and variance of all of them.
// CHECK: %[[ROWS:.*]] = shard.all_gather %{{.*}} on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x6xf32> -> tensor<2x6xf32>
// CHECK: %[[MEANS:.*]] = mpt.slice %[[ROWS]] {sizes = array<i64: 2, 3>, starts = array<i64: 0, 0>
// CHECK: mpt.reduce mean %[[MEANS]]
module {
  train.state statistic @mean : tensor<3xf32> = dense<0.0> : tensor<3xf32>
  func.func @step(%x: tensor<8x3x4xf32> {mpt.name = "x"}) {
    %one = mpt.constant dense<1.0> : tensor<3xf32>
    %y, %m, %v = mpt.batch_norm %x, %one, %one {epsilon = 1.0e-5} : (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
    train.write @mean, %m : tensor<3xf32>
    return
  }
}
