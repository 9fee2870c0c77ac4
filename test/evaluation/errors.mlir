// RUN: not mpt-run %s --function=index 2>&1 | FileCheck %s --check-prefix=INDEX
// RUN: not mpt-run %s --function=label 2>&1 | FileCheck %s --check-prefix=LABEL
// RUN: not mpt-run %s --function=unset 2>&1 | FileCheck %s --check-prefix=UNSET
// RUN: not mpt-run %s --function=absent 2>&1 | FileCheck %s --check-prefix=ABSENT
// RUN: not mpt-run %s --function=request 2>&1 | FileCheck %s --check-prefix=REQUEST
// RUN: not mpt-run %s 2>&1 | FileCheck %s --check-prefix=CASES

// ABSENT: expected a function named absent, found none
// CASES: expected a public function without arguments: name one with --function
train.state parameter @w : tensor<f32>

func.func @index(%i: tensor<1xi64>) {
  %x = mpt.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %three = mpt.constant dense<3> : tensor<1xi64>
  // INDEX: errors.mlir:[[#@LINE+1]]:8: error: 'mpt.gather' op expected indices from -2 to 1, got 3
  %y = mpt.gather %x, %three {axis = 0 : i64} : (tensor<2xf32>, tensor<1xi64>) -> tensor<1xf32>
  return
}

func.func @request(%x: tensor<1xf32>) {
  // REQUEST: error: 'train.derive' op expected a backward pass in place of the request: run training-algorithms
  %y = mpt.mul %x, %x : tensor<1xf32>
  %dx = train.derive %y of (%x) : (tensor<1xf32>, tensor<1xf32>) -> tensor<1xf32>
  return
}

func.func @label(%i: tensor<1xi64>) {
  %x = mpt.constant dense<1.0> : tensor<1x2xf32>
  %two = mpt.constant dense<2> : tensor<1xi64>
  // LABEL: error: 'mpt.softmax_cross_entropy' op expected labels from 0 to 1, got 2
  %loss, %lse, %total = mpt.softmax_cross_entropy %x, %two {reduction = #mpt<loss_reduction mean>}
    : (tensor<1x2xf32>, tensor<1xi64>) -> (tensor<f32>, tensor<1xf32>, tensor<f32>)
  return
}

func.func @unset(%i: tensor<i32>) {
  // UNSET: error: 'train.read' op expected a value of state @w: give one in the module or with --state
  %w = train.read @w : tensor<f32>
  return
}
