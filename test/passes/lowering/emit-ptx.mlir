// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_80 -o /dev/null | FileCheck %s
// RUN: not mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_70 -o /dev/null 2>&1 | FileCheck %s --check-prefix=OLD

// OLD: error: expected an architecture from sm_80 on that LLVM knows, got 'sm_70'

// Quotients and exponentials are instructions without a branch (errors: docs/gpu-kernels.md), and nothing is called: neither a
// division nor a function of libdevice.
// CHECK: .visible .entry kernel0(
// CHECK-NOT: call
// CHECK: ex2.approx.ftz.f32
// CHECK: div.full.f32
func.func @quotient(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %r = mpt.fusion(%x, %y) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> {
  ^bb0(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>):
    %c = mpt.exp %b : tensor<64x64xf32>
    %d = mpt.div %a, %c : tensor<64x64xf32>
    mpt.yield %d : tensor<64x64xf32>
  }
  return %r : tensor<64x64xf32>
}
