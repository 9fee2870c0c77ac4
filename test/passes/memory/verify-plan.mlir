// RUN: mpt-opt %s --memory-verify-plan --split-input-file --verify-diagnostics

func.func @overlap(%x: memref<16xf32>, %y: memref<16xf32>) attributes {mpt.arena_bytes = 128 : i64} {
  // expected-note@+1 {{at bytes 0 to 64}}
  %a = rt.alloc at 0 : memref<16xf32>
  // expected-error@+1 {{expected memory of its own, got bytes 0 to 64, which another live buffer uses}}
  %b = rt.alloc at 0 : memref<16xf32>
  rt.copy %x to %a : memref<16xf32>, memref<16xf32>
  rt.copy %x to %b : memref<16xf32>, memref<16xf32>
  rt.copy %a to %y : memref<16xf32>, memref<16xf32>
  return
}

// -----

func.func @outside(%x: memref<16xf32>) attributes {mpt.arena_bytes = 64 : i64} {
  // expected-error@+1 {{expected an offset that is a multiple of 64 with room for 64 bytes in an arena of 64, got 64}}
  %a = rt.alloc at 64 : memref<16xf32>
  rt.copy %x to %a : memref<16xf32>, memref<16xf32>
  return
}

// -----

// expected-error@+1 {{expected the attribute mpt.arena_bytes; run --memory-plan first}}
func.func @unplanned() {
  return
}
