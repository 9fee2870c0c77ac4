// RUN: mpt-opt %s --memory-verify-alignment --verify-diagnostics
func.func @logits(%h: memref<32x64xbf16>, %logits: memref<32x50257xbf16>, %v: memref<64x50257xbf16, strided<[50264, 1]>>) {
  // expected-error@+1 {{expected matrix d with rows at multiples of 16 bytes, got 100514 bytes from row to row, the first at 0}}
  rt.gemm %h, %v into %logits : memref<32x64xbf16>, memref<64x50257xbf16, strided<[50264, 1]>>, memref<32x50257xbf16>
  return
}
