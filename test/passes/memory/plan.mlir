// RUN: mpt-opt %s --memory-plan --memory-verify-plan | FileCheck %s

// Three buffers of 64 bytes in a chain need room for two.
// CHECK-LABEL: func.func @chain
// CHECK-SAME: mpt.arena_bytes = 128
// CHECK-DAG: rt.alloc at 0 : memref<4x4xf32>
// CHECK-DAG: rt.alloc at 64 : memref<4x4xf32>
// CHECK-DAG: rt.alloc at 0 : memref<4x4xf32>
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

func.func private @twice(%x: memref<16xf32>, %y: memref<16xf32>, %begin: index, %end: index)
  attributes {mpt.kernel, mpt.in_place = array<i64: 0, 1>}
func.func private @shift(%x: memref<16xf32>, %y: memref<16xf32>, %begin: index, %end: index) attributes {mpt.kernel}

// A kernel whose generator says so runs in place; another does not.
// CHECK-LABEL: func.func @in_place
// CHECK-SAME: mpt.arena_bytes = 128
// CHECK: %[[A:.*]] = rt.alloc at
// CHECK: rt.launch @twice(%[[A]], %[[A]])
// CHECK: %[[B:.*]] = rt.alloc at
// CHECK: rt.launch @shift(%[[A]], %[[B]])
func.func @in_place(%x: memref<16xf32>, %y: memref<16xf32> {mpt.output}) {
  %a = rt.alloc : memref<16xf32>
  rt.copy %x to %a : memref<16xf32>, memref<16xf32>
  %b = rt.alloc : memref<16xf32>
  rt.launch @twice(%a, %b) {num_inputs = 1 : i64, extent = 16 : i64, grain = 16 : i64} : memref<16xf32>, memref<16xf32>
  %c = rt.alloc : memref<16xf32>
  rt.launch @shift(%b, %c) {num_inputs = 1 : i64, extent = 15 : i64, grain = 16 : i64} : memref<16xf32>, memref<16xf32>
  rt.copy %c to %y : memref<16xf32>, memref<16xf32>
  return
}
