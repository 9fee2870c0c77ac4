// RUN: mpt-opt %s --memory-plan | FileCheck %s
// The third buffer takes the place of the first, which nobody reads any more.
// CHECK: func.func @chain{{.*}} attributes {{.*}}mpt.arena_bytes = 128
// CHECK: rt.alloc at [[FIRST:[0-9]+]] : memref<4x4xf32>
// CHECK: rt.alloc at {{[0-9]+}} : memref<4x4xf32>
// CHECK: rt.alloc at [[FIRST]] : memref<4x4xf32>
func.func @chain(%x: memref<4x4xf32>, %y: memref<4x4xf32> {mpt.output}) {
  %a = rt.alloc : memref<4x4xf32>
  rt.copy %x to %a : memref<4x4xf32>, memref<4x4xf32>
  %b = rt.alloc : memref<4x4xf32>
  rt.copy %a to %b : memref<4x4xf32>, memref<4x4xf32>
  %c = rt.alloc : memref<4x4xf32>
  rt.copy %b to %c : memref<4x4xf32>, memref<4x4xf32>
  rt.copy %c to %y : memref<4x4xf32>, memref<4x4xf32>
  return
}
