// RUN: mpt-opt %s --fusion-form | FileCheck %s
// An elementwise chain is one kernel; the GEMM between two of them is a library call.
// CHECK: %[[A:.*]] = mpt.fusion(%arg0, %arg1)
// CHECK: mpt.add
// CHECK: mpt.relu
// CHECK: %[[P:.*]] = mpt.matmul %[[A]], %arg1
// CHECK: mpt.fusion(%[[P]])
// CHECK: mpt.tanh
func.func @f(%x: tensor<64x64xf32>, %r: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = mpt.add %x, %r : tensor<64x64xf32>
  %1 = mpt.relu %0 : tensor<64x64xf32>
  %2 = mpt.matmul %1, %r : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = mpt.tanh %2 : tensor<64x64xf32>
  return %3 : tensor<64x64xf32>
}
