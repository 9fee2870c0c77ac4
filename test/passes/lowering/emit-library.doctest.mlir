// RUN: rm -rf %t && mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t name=toy" -o /dev/null
// RUN: ls %t | FileCheck %s
// CHECK: libtoy.so
// CHECK-NEXT: toy.h
// CHECK-NEXT: toy.json
// CHECK-NEXT: toy.safetensors
func.func @evaluate(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x3xf32> {mpt.name = "y"}) {
  %y = mpt.fusion(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32> {
  ^bb0(%a: tensor<2x3xf32>):
    %b = mpt.tanh %a : tensor<2x3xf32>
    mpt.yield %b : tensor<2x3xf32>
  }
  return %y : tensor<2x3xf32>
}
