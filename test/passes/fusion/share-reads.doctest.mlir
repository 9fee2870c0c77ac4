// RUN: mpt-opt %s --fusion-share-reads | FileCheck %s
// The example of docs/generated/passes.md: %n is made from %x, which the gradient reads as well; %y itself is for a GEMM.
// CHECK: %[[Y:.*]] = mpt.relu
// CHECK: %[[DY:.*]] = mpt.matmul %[[Y]]
// CHECK: %[[M:.*]] = mpt.relu
// CHECK: mpt.relu_backward %[[DY]], %[[M]]
// CHECK: mpt.reduce
// CHECK: %[[M2:.*]] = mpt.relu
// CHECK: mpt.relu_backward %[[DY]], %[[M2]]
func.func @gradient(%x: tensor<8192x256xf16>, %b: tensor<256xf16>, %w: tensor<256x256xf16>) -> (tensor<8192x256xf16>, tensor<8192x256xf16>) {
  %shift = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<256xf16>) -> tensor<8192x256xf16>
  %n = mpt.add %x, %shift : tensor<8192x256xf16>
  %y = mpt.relu %n : tensor<8192x256xf16>
  %dy = mpt.matmul %y, %w : (tensor<8192x256xf16>, tensor<256x256xf16>) -> tensor<8192x256xf16>
  %g = mpt.relu_backward %dy, %y : tensor<8192x256xf16>
  %gx = mpt.mul %g, %x : tensor<8192x256xf16>
  %s = mpt.reduce sum %gx {axes = array<i64: 0>} : (tensor<8192x256xf16>) -> tensor<256xf16>
  %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<256xf16>) -> tensor<8192x256xf16>
  %u = mpt.mul %x, %sb : tensor<8192x256xf16>
  %dx = mpt.sub %g, %u : tensor<8192x256xf16>
  return %y, %dx : tensor<8192x256xf16>, tensor<8192x256xf16>
}
