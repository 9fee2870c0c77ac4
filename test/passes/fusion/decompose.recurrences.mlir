// RUN: mpt-opt %s --fusion-decompose=recurrences=true | FileCheck %s
// RUN: mpt-opt %s --fusion-decompose | FileCheck %s --check-prefix=STEPS

// A runtime that computes recurrences gets them whole; without one they are their steps.
// CHECK-LABEL: func.func @whole
// CHECK-NEXT: mpt.recurrence gru
// CHECK-NEXT: return
// STEPS-LABEL: func.func @whole
// STEPS-NOT: mpt.recurrence
// STEPS-COUNT-2: mpt.matmul
func.func @whole(%x: tensor<2x3x12xbf16>, %r: tensor<12x4xbf16>, %h: tensor<3x4xbf16>, %b: tensor<4xbf16>) -> tensor<2x3x4xbf16> {
  %y, %gates = mpt.recurrence gru %x, %r, %h, %b : (tensor<2x3x12xbf16>, tensor<12x4xbf16>, tensor<3x4xbf16>, tensor<4xbf16>) -> (tensor<2x3x4xbf16>, tensor<2x3x16xbf16>)
  return %y : tensor<2x3x4xbf16>
}

// No runtime computes them in FP64. The GEMMs belong to the part of the step that the recurrence does.
// CHECK-LABEL: func.func @double
// CHECK-NOT: mpt.recurrence
// CHECK-COUNT-2: mpt.matmul {{.*}}train.part = #train<part backward>
func.func @double(%dy: tensor<2x3x4xf64>, %r: tensor<4x4xf64>, %h: tensor<3x4xf64>, %y: tensor<2x3x4xf64>) -> tensor<3x4xf64> {
  %dx, %dh = mpt.recurrence_backward tanh %dy, %r, %h, %y {reverse, train.part = #train<part backward>} : (tensor<2x3x4xf64>, tensor<4x4xf64>, tensor<3x4xf64>, tensor<2x3x4xf64>) -> (tensor<2x3x4xf64>, tensor<3x4xf64>)
  return %dh : tensor<3x4xf64>
}

// CTC's recursion is a loop of generated kernels, in FP64 too.
// CHECK-LABEL: func.func @alignments
// CHECK-NEXT: mpt.alignments
// CHECK-NEXT: mpt.alignments_backward
// CHECK-NEXT: return
// STEPS-LABEL: func.func @alignments
// STEPS-NOT: mpt.alignments
// STEPS-COUNT-2: mpt.log
func.func @alignments(%e: tensor<2x3x5xf64>, %s: tensor<3x5xf64>, %o: tensor<2x3xf64>) -> tensor<2x3x5xf64> {
  %last, %alphas = mpt.alignments %e, %s, %o : (tensor<2x3x5xf64>, tensor<3x5xf64>, tensor<2x3xf64>) -> (tensor<3x5xf64>, tensor<2x3x5xf64>)
  %d = mpt.alignments_backward %last, %alphas, %s, %o : (tensor<3x5xf64>, tensor<2x3x5xf64>, tensor<3x5xf64>, tensor<2x3xf64>) -> tensor<2x3x5xf64>
  return %d : tensor<2x3x5xf64>
}

// Without a bias the reset gate comes first: its GEMM waits for the GEMM of the gates.
// CHECK-LABEL: func.func @reset_first
// CHECK-NEXT: mpt.recurrence gru
// STEPS-LABEL: func.func @reset_first
// STEPS-NOT: mpt.recurrence
// STEPS: mpt.matmul {{.*}} -> tensor<3x8xf32>
// STEPS: mpt.matmul {{.*}} -> tensor<3x4xf32>
func.func @reset_first(%x: tensor<1x3x12xbf16>, %r: tensor<12x4xbf16>, %h: tensor<3x4xbf16>) -> tensor<1x3x4xbf16> {
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h : (tensor<1x3x12xbf16>, tensor<12x4xbf16>, tensor<3x4xbf16>) -> (tensor<1x3x4xbf16>, tensor<1x3x12xbf16>, tensor<1x3x4xf32>)
  return %y : tensor<1x3x4xbf16>
}
