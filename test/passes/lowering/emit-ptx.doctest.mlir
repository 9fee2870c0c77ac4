// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_90 -o /dev/null | FileCheck %s
// CHECK: .target sm_90
// CHECK: .visible .entry kernel0(
// CHECK: ld.global
// CHECK: st.global
func.func @evaluate(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x3xf32> {mpt.name = "y"}) {
  %y = mpt.fusion(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32> {
  ^bb0(%a: tensor<2x3xf32>):
    %b = mpt.tanh %a : tensor<2x3xf32>
    mpt.yield %b : tensor<2x3xf32>
  }
  return %y : tensor<2x3xf32>
}
