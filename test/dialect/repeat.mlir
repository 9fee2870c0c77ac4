// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// RUN: mpt-opt %s -split-input-file -verify-diagnostics --memory-verify-alignment
// Valid loops of calls, and that a loop reads and writes the same as its body.

func.func @no_pass(%a: memref<8xf32>) {
  // expected-error @below {{C1: expected at least one pass, got 0}}
  rt.repeat 0 times (%a) advancing [0] : memref<8xf32> {
  ^bb0(%x: memref<8xf32>):
    rt.zero %x : memref<8xf32>
  }
  return
}

// -----

func.func @counts(%a: memref<8xf32>) {
  // expected-error @below {{C2: expected an argument of the body and an advance for each of 1 buffers, got 1 and 2}}
  rt.repeat 3 times (%a) advancing [0, 1] : memref<8xf32> {
  ^bb0(%x: memref<8xf32>):
    rt.zero %x : memref<8xf32>
  }
  return
}

// -----

func.func @types(%a: memref<8xf32>) {
  // expected-error @below {{C2: expected the element type of 'memref<8xf32>', got 'memref<8xf16>'}}
  rt.repeat 3 times (%a) advancing [0] : memref<8xf32> {
  ^bb0(%x: memref<8xf16>):
    rt.zero %x : memref<8xf16>
  }
  return
}
