// RUN: split-file %s %t
// RUN: mpt-opt %t/step.mlir --distribution-sync-batch-norm=replicas=4 | FileCheck %s
// RUN: mpt-opt %t/step.mlir --distribution-sync-batch-norm=replicas=4 --distribution-replicate=replicas=4 --distribution-bucket --distribution-verify-replicas | FileCheck %s --check-prefix=WHOLE
// RUN: mpt-opt %t/step.mlir --distribution-sync-batch-norm | FileCheck %s --check-prefix=ONE
// RUN: mpt-opt %t/weights.mlir --distribution-sync-batch-norm=replicas=4 | FileCheck %s --check-prefix=WEIGHTS
// RUN: not mpt-opt %t/step.mlir --distribution-sync-batch-norm=replicas=any 2>&1 | FileCheck %s --check-prefix=ANY
// RUN: not mpt-opt %t/none.mlir --distribution-sync-batch-norm=replicas=4 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not mpt-opt %t/result.mlir --distribution-sync-batch-norm=replicas=4 2>&1 | FileCheck %s --check-prefix=RESULT
// RUN: not mpt-opt %t/other.mlir --distribution-sync-batch-norm=replicas=4 2>&1 | FileCheck %s --check-prefix=OTHER

// ONE: mpt.batch_norm
// ONE-NOT: shard.
// ANY: expected a number of replicas for --sync-batch-norm, got 'any'
// NONE: expected a batch normalization of the model's inputs for --sync-batch-norm, found none
// RESULT: expected statistics that normalize and that are kept, for --sync-batch-norm, got ones that a result or a gradient is computed from
// OTHER: expected a gradient of batch norm around the statistics of the forward pass for --sync-batch-norm, got other ones

//--- step.mlir
// Of 16-bit values all is FP32. 4 replicas of 8 rows of 5 values: sums over 160.
// CHECK: shard.grid @replicas(shape = 4)
// A norm gives the replica's own statistics.
// CHECK: %[[X:.*]] = mpt.cast %arg0 : tensor<8x3x5xf16> to tensor<8x3x5xf32>
// CHECK: %{{.*}}, %[[OWN:.*]], %[[VARIANCE:.*]] = mpt.batch_norm %arg0
// CHECK-NOT: mpt.batch_norm
// CHECK: %[[BOTH:.*]] = mpt.concat %[[OWN]], %[[VARIANCE]]
// CHECK: %[[ROW:.*]] = mpt.reshape %[[BOTH]] : (tensor<6xf32>) -> tensor<1x6xf32>
// CHECK: shard.all_gather %[[ROW]] on @replicas grid_axes = [0] gather_axis = 0 : tensor<1x6xf32> -> tensor<4x6xf32>
// CHECK: %[[MEAN:.*]] = mpt.reduce mean %{{.*}} {axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<3xf32>
// CHECK: %[[SQUARES:.*]] = mpt.mul %[[APART:.*]], %[[APART]] : tensor<4x3xf32>
// CHECK: mpt.add %{{.*}}, %[[SQUARES]] : tensor<4x3xf32>
// CHECK: mpt.cast %{{.*}} : tensor<8x3x5xf32> to tensor<8x3x5xf16>
// CHECK: train.write @mean, %[[MEAN]]
// CHECK: %[[BACK:.*]] = mpt.mul %arg1
// CHECK: %[[DY:.*]] = mpt.cast %[[BACK]] : tensor<8x3x5xf16> to tensor<8x3x5xf32>
// CHECK: %[[DBIAS:.*]] = mpt.reduce sum %[[DY]] {axes = array<i64: 0, 2>
// CHECK: %[[DSCALE:.*]] = mpt.reduce sum %{{.*}} {axes = array<i64: 0, 2>
// CHECK: shard.all_reduce %[[DSCALE]] on @replicas grid_axes = [0] : tensor<3xf32> -> tensor<3xf32>
// CHECK: mpt.constant dense<1.600000e+02>
// CHECK: shard.all_reduce %[[DBIAS]] on @replicas grid_axes = [0] : tensor<3xf32> -> tensor<3xf32>
// CHECK: train.gradient @scale, %[[DSCALE]]
// Both sums travel together, and not with gradients; running statistics need no mean.
// WHOLE: shard.all_gather
// WHOLE: shard.all_reduce %{{.*}} : tensor<3xf32> -> tensor<3xf32>
// WHOLE: mpt.concat %{{.*}} : (tensor<3xf32>, tensor<3xf32>) -> tensor<6xf32>
// WHOLE: shard.all_reduce %{{.*}} : tensor<6xf32> -> tensor<6xf32>
// WHOLE: shard.all_reduce %{{.*}} : tensor<120xf32> -> tensor<120xf32>
// WHOLE-NOT: shard.all_reduce
module {
  train.state parameter @scale : tensor<3xf32> = dense<1.0> : tensor<3xf32>
  train.state parameter @w : tensor<8x3x5xf32> = dense<1.0> : tensor<8x3x5xf32>
  train.state statistic @mean : tensor<3xf32> = dense<0.0> : tensor<3xf32>
  func.func @step(%x: tensor<8x3x5xf16> {mpt.name = "x"}, %dy: tensor<8x3x5xf16> {mpt.name = "dy"}) {
    %scale = train.read @scale : tensor<3xf32>
    %y, %m, %v = mpt.batch_norm %x, %scale, %scale {epsilon = 1.0e-5} : (tensor<8x3x5xf16>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x5xf16>, tensor<3xf32>, tensor<3xf32>)
    train.write @mean, %m : tensor<3xf32>
    %back = mpt.mul %dy, %y : tensor<8x3x5xf16>
    %dx, %dscale, %dbias = mpt.batch_norm_backward %back, %x, %scale, %m, %v {epsilon = 1.0e-5} : (tensor<8x3x5xf16>, tensor<8x3x5xf16>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x5xf16>, tensor<3xf32>, tensor<3xf32>)
    %g = train.gradient @scale, %dscale : tensor<3xf32>
    train.write @scale, %g : tensor<3xf32>
    %dw = mpt.mul %dx, %y : tensor<8x3x5xf16>
    %wide = mpt.cast %dw : tensor<8x3x5xf16> to tensor<8x3x5xf32>
    %h = train.gradient @w, %wide : tensor<8x3x5xf32>
    train.write @w, %h : tensor<8x3x5xf32>
    return
  }
}

//--- weights.mlir
// A value computed from parameters alone is the same on all replicas.
// WEIGHTS: mpt.batch_norm %{{.*}} : (tensor<3x5x1xf32>
// WEIGHTS: shard.all_gather
// WEIGHTS-NOT: shard.all_gather
module {
  train.state parameter @w : tensor<3x5x1xf32> = dense<1.0> : tensor<3x5x1xf32>
  func.func @step(%x: tensor<8x3x4xf32> {mpt.name = "x"}) -> (tensor<8x3x4xf32> {mpt.name = "y"}, tensor<3x5x1xf32> {mpt.name = "z"}) {
    %w = train.read @w : tensor<3x5x1xf32>
    %five = mpt.constant dense<1.0> : tensor<5xf32>
    %three = mpt.constant dense<1.0> : tensor<3xf32>
    %z, %a, %b = mpt.batch_norm %w, %five, %five {epsilon = 1.0e-5} : (tensor<3x5x1xf32>, tensor<5xf32>, tensor<5xf32>) -> (tensor<3x5x1xf32>, tensor<5xf32>, tensor<5xf32>)
    %y, %m, %v = mpt.batch_norm %x, %three, %three {epsilon = 1.0e-5} : (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
    return %y, %z : tensor<8x3x4xf32>, tensor<3x5x1xf32>
  }
}

//--- none.mlir
module {
  func.func @step(%x: tensor<8x3x4xf32> {mpt.name = "x"}) {
    return
  }
}

//--- result.mlir
module {
  func.func @step(%x: tensor<8x3x4xf32> {mpt.name = "x"}) -> (tensor<3xf32> {mpt.name = "penalty"}) {
    %one = mpt.constant dense<1.0> : tensor<3xf32>
    %y, %m, %v = mpt.batch_norm %x, %one, %one {epsilon = 1.0e-5} : (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
    %p = mpt.mul %v, %v : tensor<3xf32>
    return %p : tensor<3xf32>
  }
}

//--- other.mlir
module {
  func.func @step(%x: tensor<8x3x4xf32> {mpt.name = "x"}) -> (tensor<8x3x4xf32> {mpt.name = "dx"}) {
    %one = mpt.constant dense<1.0> : tensor<3xf32>
    %y, %m, %v = mpt.batch_norm %x, %one, %one {epsilon = 1.0e-5} : (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
    %dx, %ds, %db = mpt.batch_norm_backward %y, %x, %one, %one, %one {epsilon = 1.0e-5} : (tensor<8x3x4xf32>, tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<8x3x4xf32>, tensor<3xf32>, tensor<3xf32>)
    return %dx : tensor<8x3x4xf32>
  }
}
