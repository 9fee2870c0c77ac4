// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --memory-report -o /dev/null | FileCheck %s
// CHECK: state (bytes)
// CHECK-NEXT: parameter 8,192
// CHECK-NEXT: @evaluate
// CHECK-NEXT: arena 16,384
train.state parameter @w : tensor<64x64xbf16> = dense<2.0> : tensor<64x64xbf16>
func.func @evaluate(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %h = mpt.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %y = mpt.matmul %h, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}
