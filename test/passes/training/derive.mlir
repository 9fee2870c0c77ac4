// RUN: mpt-opt %s --training-derive --split-input-file --verify-diagnostics | FileCheck %s
// A held value is a variable of its own: d = c * a is derived with c as it is.
// CHECK-LABEL: func.func @held
func.func @held(%a: tensor<3xf32>) -> tensor<3xf32> {
  // CHECK: %[[C:.*]] = mpt.neg
  // CHECK: %[[D:.*]] = mpt.mul %{{.*}}, %[[C]]
  // CHECK: return %[[D]]
  %c = mpt.neg %a : tensor<3xf32>
  %d = mpt.mul %c, %a : tensor<3xf32>
  %da = train.derive %d of (%a) holding (%c) : (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %da : tensor<3xf32>
}
// -----
// Algorithms become steps as a whole.
// CHECK-LABEL: func.func @algorithm.0
func.func @algorithm.0(%a: tensor<3xf32>) -> tensor<3xf32> attributes {mpt.name = "one"} {
  // CHECK: train.derive
  %d = mpt.mul %a, %a : tensor<3xf32>
  %da = train.derive %d of (%a) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %da : tensor<3xf32>
}
// -----
// CHECK-LABEL: func.func @independent
func.func @independent(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
  // CHECK: %[[ZERO:.*]] = mpt.constant dense<0.000000e+00>
  // CHECK: return %[[ZERO]]
  %d = mpt.mul %a, %a : tensor<3xf32>
  // expected-warning@below {{y does not depend on a tensor in xs: its gradient is zero}}
  %db = train.derive %d of (%b) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %db : tensor<3xf32>
}
// -----
func.func @types(%a: tensor<3xf32>) {
  %d = mpt.mul %a, %a : tensor<3xf32>
  // expected-error@below {{C1: expected a result of the type of each of 1 tensors, got 0 results}}
  train.derive %d of (%a) : (tensor<3xf32>, tensor<3xf32>) -> ()
  return
}
