// RUN: mpt-opt %s --precision-assign=placement=painting | FileCheck %s --check-prefix=PAINT
// RUN: mpt-opt %s --precision-assign | FileCheck %s --check-prefix=CUT
// RUN: not mpt-opt %s --precision-assign=placement=random 2>&1 | FileCheck %s --check-prefix=BAD

// BAD: expected placement cut or painting, got random

// An infer op between two GEMMs becomes narrow; one after the last GEMM stays wide, a clear one next to it does not.
// PAINT-LABEL: func.func @sandwich
// PAINT: mpt.tanh {{.*}}operands = [f16], results = [f16]
// PAINT: mpt.tanh {{.*}}operands = [f32], results = [f32]
// PAINT: mpt.relu {{.*}}operands = [f16], results = [f16]
func.func @sandwich(%x: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %0 = mpt.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = mpt.tanh %0 : tensor<64x64xf32>
  %2 = mpt.matmul %1, %1 : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = mpt.tanh %2 : tensor<64x64xf32>
  %4 = mpt.relu %2 : tensor<64x64xf32>
  return %3, %4 : tensor<64x64xf32>, tensor<64x64xf32>
}

// A GEMM delivers f32 to a wide reader by itself: the cut casts nothing behind the GEMM, painting does.
// CUT-LABEL: func.func @delivers
// CUT: mpt.matmul {{.*}}results = [f32]
// PAINT-LABEL: func.func @delivers
// PAINT: mpt.matmul {{.*}}results = [f16]
func.func @delivers(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = mpt.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = mpt.exp %0 : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
