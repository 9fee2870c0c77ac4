// RUN: mpt-opt %s --memory-verify-plan --verify-diagnostics
func.func @overlap(%x: memref<16xf32>, %y: memref<16xf32>) attributes {mpt.arena_bytes = 128 : i64} {
  // expected-note@+1 {{at bytes 0 to 64}}
  %a = rt.alloc at 0 : memref<16xf32>
  // expected-error@+1 {{expected memory of its own, got bytes 0 to 64, which another live buffer uses}}
  %b = rt.alloc at 0 : memref<16xf32>
  rt.copy %x to %a : memref<16xf32>, memref<16xf32>
  rt.copy %a to %b : memref<16xf32>, memref<16xf32>
  rt.copy %a to %y : memref<16xf32>, memref<16xf32>
  return
}
