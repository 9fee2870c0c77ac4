// RUN: mpt-opt %s --training-evaluate | FileCheck %s
// Dropout passes on, batch normalization uses its running statistics, and nothing is written.
train.state statistic @mean : tensor<3xf32> = dense<0.0> : tensor<3xf32>
train.state statistic @var : tensor<3xf32> = dense<1.0> : tensor<3xf32>
train.state rng @mpt.rng : tensor<2xi64> = dense<[7, 0]> : tensor<2xi64>

// CHECK: func.func @forward
// CHECK: func.func @evaluate(%[[X:.*]]: tensor<4x3xf32> {mpt.name = "x"}) -> (tensor<4x3xf32> {mpt.name = "y"})
func.func @forward(%x: tensor<4x3xf32> {mpt.name = "x"}) -> (tensor<4x3xf32> {mpt.name = "y"}) {
  // CHECK-NOT: train.write
  // CHECK-NOT: mpt.batch_norm
  // CHECK-NOT: mpt.dropout
  // CHECK-DAG: %[[MEAN:.*]] = train.read @mean
  // CHECK-DAG: %[[VAR:.*]] = train.read @var
  // CHECK: %[[V:.*]] = mpt.add %[[VAR]]
  // CHECK: %[[I:.*]] = mpt.rsqrt %[[V]]
  // CHECK: %[[SCALE:.*]] = mpt.mul %{{.*}}, %[[I]]
  // CHECK: %[[M:.*]] = mpt.mul %[[MEAN]], %[[SCALE]]
  // CHECK: %[[SHIFT:.*]] = mpt.sub %{{.*}}, %[[M]]
  // CHECK: mpt.mul %[[X]]
  // CHECK: %[[Y:.*]] = mpt.add
  // CHECK: return %[[Y]]
  %one = mpt.constant dense<1.0> : tensor<3xf32>
  %y, %m, %v = mpt.batch_norm %x, %one, %one {epsilon = 1.0e-5, mpt.statistics = [@mean, @var]}
    : (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>)
  train.write @mean, %m : tensor<3xf32>
  %key = train.read @mpt.rng : tensor<2xi64>
  %d = mpt.dropout %y, %key {ratio = 0.5, stream = 0} : (tensor<4x3xf32>, tensor<2xi64>) -> tensor<4x3xf32>
  return %d : tensor<4x3xf32>
}
