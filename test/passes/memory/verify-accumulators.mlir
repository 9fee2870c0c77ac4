// RUN: mpt-opt %s --memory-verify-accumulators --split-input-file --verify-diagnostics

// Widened, added up, and rounded at every update: the old scatter.
func.func @in_memory(%u: memref<64xbf16>, %y: memref<4xbf16>, %begin: index, %end: index) attributes {mpt.kernel} {
  %one = arith.constant 1 : index
  scf.for %i = %begin to %end step %one {
    %old = memref.load %y[%one] : memref<4xbf16>
    %new = memref.load %u[%i] : memref<64xbf16>
    %a = arith.extf %old : bf16 to f32
    %b = arith.extf %new : bf16 to f32
    %sum = arith.addf %a, %b : f32
    %r = arith.truncf %sum : f32 to bf16
    // expected-error@+1 {{expected a running value of f32 or wider in memory, got 'bf16': every update rounds it}}
    memref.store %r, %y[%one] : memref<4xbf16>
  }
  return
}

// -----

// The same through a view of the memory, and a product.
func.func @viewed(%u: memref<64xf16>, %y: memref<2x2xf16>, %begin: index, %end: index) attributes {mpt.kernel} {
  %one = arith.constant 1 : index
  %flat = memref.collapse_shape %y [[0, 1]] : memref<2x2xf16> into memref<4xf16>
  scf.for %i = %begin to %end step %one {
    %old = memref.load %y[%one, %one] : memref<2x2xf16>
    %new = memref.load %u[%i] : memref<64xf16>
    %a = arith.extf %old : f16 to f32
    %b = arith.extf %new : f16 to f32
    %product = arith.mulf %a, %b : f32
    %r = arith.truncf %product : f32 to f16
    // expected-error@+1 {{expected a running value of f32 or wider in memory, got 'f16': every update rounds it}}
    memref.store %r, %flat[%one] : memref<4xf16>
  }
  return
}

// -----

func.func @in_registers(%u: memref<64xbf16>, %y: memref<1xbf16>, %begin: index, %end: index) attributes {mpt.kernel} {
  %one = arith.constant 1 : index
  %zero = arith.constant 0.0 : bf16
  // expected-error@+1 {{expected a running value of f32 or wider, got 'bf16': every turn rounds it}}
  %sum = scf.for %i = %begin to %end step %one iter_args(%so_far = %zero) -> bf16 {
    %new = memref.load %u[%i] : memref<64xbf16>
    %a = arith.extf %so_far : bf16 to f32
    %b = arith.extf %new : bf16 to f32
    %s = arith.addf %a, %b : f32
    %r = arith.truncf %s : f32 to bf16
    scf.yield %r : bf16
  }
  memref.store %sum, %y[%begin] : memref<1xbf16>
  return
}

// -----

func.func @arithmetic(%u: memref<64xf16>, %y: memref<64xf16>, %begin: index, %end: index) attributes {mpt.kernel} {
  %a = memref.load %u[%begin] : memref<64xf16>
  // expected-error@+1 {{expected arithmetic in f32 or wider, got 'f16'}}
  %b = arith.addf %a, %a : f16
  memref.store %b, %y[%begin] : memref<64xf16>
  return
}

// -----

// Maxima move values; sums in FP32 are rounded once; a value read from other memory is no running value.
func.func @fine(%u: memref<64xbf16>, %y: memref<4xbf16>, %z: memref<64xbf16>, %wide: memref<4xf32>, %begin: index, %end: index) attributes {mpt.kernel} {
  %one = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %total = scf.for %i = %begin to %end step %one iter_args(%so_far = %zero) -> f32 {
    %new = memref.load %u[%i] : memref<64xbf16>
    %b = arith.extf %new : bf16 to f32
    %old = memref.load %y[%one] : memref<4xbf16>
    %a = arith.extf %old : bf16 to f32
    %most = arith.maximumf %a, %b : f32
    %m = arith.truncf %most : f32 to bf16
    memref.store %m, %y[%one] : memref<4xbf16>
    %before = memref.load %wide[%one] : memref<4xf32>
    %more = arith.addf %before, %b : f32
    memref.store %more, %wide[%one] : memref<4xf32>
    %double = arith.addf %b, %b : f32
    %d = arith.truncf %double : f32 to bf16
    memref.store %d, %z[%i] : memref<64xbf16>
    %s = arith.addf %so_far, %b : f32
    scf.yield %s : f32
  }
  %r = arith.truncf %total : f32 to bf16
  memref.store %r, %y[%begin] : memref<4xbf16>
  return
}

// -----

// Not a kernel.
func.func @other(%a: f16) -> f16 {
  %b = arith.addf %a, %a : f16
  return %b : f16
}
