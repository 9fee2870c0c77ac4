// RUN: mpt-opt %s --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s

// Numbers that are BF16 or FP16 already are not rounded again: magnitudes, and choices between such numbers and zero.
// BF16 is rounded in integers, by an addition.
// CHECK-LABEL: func.func private @kernel0(
// CHECK: math.absf
// CHECK-NOT: arith.addi
// CHECK: return
// CHECK-LABEL: func.func private @kernel1(
// CHECK: arith.select
// CHECK-NEXT: arith.truncf
// CHECK-NEXT: vector.store
// A sum is no such number.
// CHECK-LABEL: func.func private @kernel2(
// CHECK: math.absf
// CHECK: arith.addi
// CHECK: return
func.func @f(%x: tensor<64xbf16>, %y: tensor<64xf16>) -> (tensor<64xbf16>, tensor<64xf16>, tensor<64xbf16>) {
  %a = mpt.fusion(%x) : (tensor<64xbf16>) -> tensor<64xbf16> {
  ^bb0(%v: tensor<64xbf16>):
    %m = mpt.abs %v : tensor<64xbf16>
    mpt.yield %m : tensor<64xbf16>
  }
  %b = mpt.fusion(%y) : (tensor<64xf16>) -> tensor<64xf16> {
  ^bb0(%v: tensor<64xf16>):
    %m = mpt.relu_backward %v, %v : tensor<64xf16>
    mpt.yield %m : tensor<64xf16>
  }
  %c = mpt.fusion(%x) : (tensor<64xbf16>) -> tensor<64xbf16> {
  ^bb0(%v: tensor<64xbf16>):
    %m = mpt.abs %v : tensor<64xbf16>
    %s = mpt.add %m, %v : tensor<64xbf16>
    mpt.yield %s : tensor<64xbf16>
  }
  return %a, %b, %c : tensor<64xbf16>, tensor<64xf16>, tensor<64xbf16>
}
