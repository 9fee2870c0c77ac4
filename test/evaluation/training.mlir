// RUN: mpt-run %s
// A model's statements on gradients change no value.

func.func @values() {
  %x = mpt.constant dense<[1.0, -2.0]> : tensor<2xf32>
  %c = mpt.cotangent %x : (tensor<2xf32>) -> tensor<2xf32>
  %g = mpt.neg %c : tensor<2xf32>
  %y = mpt.custom_gradient %x cotangents %c inputs %x gradients %g
    : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %z = mpt.custom_gradient %x : (tensor<2xf32>) -> tensor<2xf32>
  %zero = mpt.constant dense<0.0> : tensor<2xf32>
  check.equal %y, %x : tensor<2xf32>
  check.equal %z, %x : tensor<2xf32>
  check.equal %c, %zero : tensor<2xf32>
  return
}
