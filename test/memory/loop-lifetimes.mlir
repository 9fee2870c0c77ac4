// RUN: mpt-opt %s --memory-plan --memory-verify-plan | FileCheck %s

// Scratch that the body of a loop writes and reads in turn lives through all passes: buffers of one loop have memory of
// their own, and buffers dead before it are reused.
// CHECK-LABEL: func.func @turns
// CHECK-SAME: mpt.arena_bytes = 512 : i64
func.func @turns(%x: memref<4x64xf32>, %y: memref<4x64xf32>) {
  // CHECK: rt.alloc at [[FIRST:0|256]]
  %dead = rt.alloc : memref<64xf32>
  rt.zero %dead : memref<64xf32>
  // CHECK: rt.alloc at 0
  // CHECK: rt.alloc at 256
  %a = rt.alloc : memref<64xf32>
  %b = rt.alloc : memref<64xf32>
  rt.repeat 4 times (%x, %a, %b, %y) advancing [64, 0, 0, 64] : memref<4x64xf32>, memref<64xf32>, memref<64xf32>, memref<4x64xf32> {
  ^bb0(%from: memref<64xf32>, %p: memref<64xf32>, %q: memref<64xf32>, %to: memref<64xf32>):
    rt.copy %from to %p : memref<64xf32>, memref<64xf32>
    rt.copy %p to %q : memref<64xf32>, memref<64xf32>
    rt.copy %q to %to : memref<64xf32>, memref<64xf32>
  }
  return
}
