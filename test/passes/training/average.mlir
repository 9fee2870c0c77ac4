// RUN: mpt-opt %s --training-average | FileCheck %s
// RUN: mpt-opt %s --training-average=decay=0.5 | FileCheck %s --check-prefix=HALF
// RUN: not mpt-opt %s --training-average=decay=1 2>&1 | FileCheck %s --check-prefix=RANGE
// No averages unless asked for, and none of states that are no parameters.
// CHECK-NOT: ema
// HALF-NOT: ema
// RANGE: error: expected a decay of averages in [0, 1), got 1
train.state statistic @mean : tensor<3xf32> = dense<0.5> : tensor<3xf32>
func.func @step(%x: tensor<3xf32>) {
  train.write @mean, %x : tensor<3xf32>
  return
}
