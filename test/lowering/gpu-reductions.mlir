// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_90 -o /dev/null | FileCheck %s --check-prefix=PTX
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --debug-only=lowering-emit-kernels 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: lowering-emit-kernels: {{.*}}: not linked-scatter: expected one scattering op
// WHY: lowering-emit-kernels: {{.*}}: not transpose: expected no reduction

// The slices' sums lie in scratch, which the launch names last.
// CHECK-LABEL: func.func @columns
// CHECK: rt.launch @kernel1(%{{.*}}, %{{.*}}, %{{.*}}) {{.*}}xi8>

// A softmax reads its row once: a warp a row, values in registers between the maximum, the sum and the quotient.
// CHECK: func.func private @kernel0
// CHECK-SAME: mpt.schedule = "rows"
// CHECK-NOT: scf.for
// CHECK-COUNT-1: vector.load
// CHECK: gpu.shuffle xor
// CHECK: gpu.shuffle xor
// CHECK-NOT: memref.load
// CHECK: vector.store
// CHECK: return
// PTX: .visible .entry kernel0
// PTX: shfl.sync.bfly
func.func @softmax(%x: tensor<512x256xf16>) -> tensor<512x256xf16> {
  %r = mpt.fusion(%x) : (tensor<512x256xf16>) -> tensor<512x256xf16> {
  ^bb0(%a: tensor<512x256xf16>):
    %w = mpt.cast %a : tensor<512x256xf16> to tensor<512x256xf32>
    %m = mpt.reduce max %w {axes = array<i64: 1>} : (tensor<512x256xf32>) -> tensor<512xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 0>} : (tensor<512xf32>) -> tensor<512x256xf32>
    %d = mpt.sub %w, %mb : tensor<512x256xf32>
    %e = mpt.exp %d : tensor<512x256xf32>
    %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<512x256xf32>) -> tensor<512xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 0>} : (tensor<512xf32>) -> tensor<512x256xf32>
    %q = mpt.div %e, %sb : tensor<512x256xf32>
    %y = mpt.cast %q : tensor<512x256xf32> to tensor<512x256xf16>
    mpt.yield %y : tensor<512x256xf16>
  }
  return %r : tensor<512x256xf16>
}

// Sums down columns go over two launches, whose order of additions is fixed; the second gathers in FP64.
// CHECK: func.func private @kernel1(
// CHECK-SAME: mpt.schedule = "columns"
// CHECK: gpu.barrier
// CHECK: func.func private @kernel1_1(
// CHECK-SAME: mpt.schedule = "columns-sum"
// CHECK: arith.addf {{.*}} : f64
func.func @columns(%x: tensor<16384x64xf16>) -> tensor<64xf32> {
  %r = mpt.fusion(%x) : (tensor<16384x64xf16>) -> tensor<64xf32> {
  ^bb0(%a: tensor<16384x64xf16>):
    %w = mpt.cast %a : tensor<16384x64xf16> to tensor<16384x64xf32>
    %s = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<16384x64xf32>) -> tensor<64xf32>
    mpt.yield %s : tensor<64xf32>
  }
  return %r : tensor<64xf32>
}

// Many sums beside each other want more registers a thread than 512 threads leave.
// CHECK: func.func private
// CHECK-SAME: mpt.block = array<i64: 256, 1, 1>
// CHECK-SAME: mpt.schedule = "rows"
// CHECK: vector.load {{.*}} vector<4xf16>
func.func @many(%a: tensor<4096xf16>, %b: tensor<4096xf16>) -> tensor<f32> {
  %r = mpt.fusion(%a, %b) : (tensor<4096xf16>, tensor<4096xf16>) -> tensor<f32> {
  ^bb0(%x: tensor<4096xf16>, %y: tensor<4096xf16>):
    %p = mpt.cast %x : tensor<4096xf16> to tensor<4096xf32>
    %q = mpt.cast %y : tensor<4096xf16> to tensor<4096xf32>
    %0 = mpt.reduce sum %p {axes = array<i64: 0>} : (tensor<4096xf32>) -> tensor<f32>
    %1 = mpt.reduce max %p {axes = array<i64: 0>} : (tensor<4096xf32>) -> tensor<f32>
    %2 = mpt.reduce min %p {axes = array<i64: 0>} : (tensor<4096xf32>) -> tensor<f32>
    %3 = mpt.reduce sum %q {axes = array<i64: 0>} : (tensor<4096xf32>) -> tensor<f32>
    %4 = mpt.reduce max %q {axes = array<i64: 0>} : (tensor<4096xf32>) -> tensor<f32>
    %5 = mpt.add %0, %1 : tensor<f32>
    %6 = mpt.add %2, %3 : tensor<f32>
    %7 = mpt.add %4, %5 : tensor<f32>
    %8 = mpt.add %6, %7 : tensor<f32>
    mpt.yield %8 : tensor<f32>
  }
  return %r : tensor<f32>
}
