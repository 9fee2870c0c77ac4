// RUN: mpt-opt %s --memory-verify-accumulators --verify-diagnostics
func.func @kernel(%u: memref<64xbf16>, %y: memref<1xbf16>, %begin: index, %end: index) attributes {mpt.kernel} {
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
