// RUN: mpt-opt %s --memory-verify-alignment --split-input-file --verify-diagnostics
// RUN: mpt-opt %s --memory-verify-alignment=smallest=65536 --split-input-file | FileCheck %s

// CHECK-LABEL: @stride
func.func @stride(%a: memref<32x64xbf16>, %b: memref<64x50xbf16>, %d: memref<32x50xbf16, strided<[56, 1]>>) {
  // expected-error@+1 {{expected matrix b with rows at multiples of 16 bytes, got 100 bytes from row to row, the first at 0}}
  rt.gemm %a, %b into %d : memref<32x64xbf16>, memref<64x50xbf16>, memref<32x50xbf16, strided<[56, 1]>>
  return
}

// -----

// CHECK-LABEL: @offset
func.func @offset(%whole: memref<65x64xbf16>, %b: memref<64x56xbf16>, %d: memref<32x56xbf16>) {
  %a = rt.view %whole[4] : memref<65x64xbf16> to memref<32x64xbf16>
  // expected-error@+1 {{expected matrix a with rows at multiples of 16 bytes, got 128 bytes from row to row, the first at 8}}
  rt.gemm %a, %b into %d : memref<32x64xbf16>, memref<64x56xbf16>, memref<32x56xbf16>
  return
}

// -----

// Vectors have no leading dimension.
// CHECK-LABEL: @vector
func.func @vector(%a: memref<32x50xf32, strided<[52, 1]>>, %b: memref<50x1xf32>, %d: memref<32x1xf32>) {
  rt.gemm %a, %b into %d : memref<32x50xf32, strided<[52, 1]>>, memref<50x1xf32>, memref<32x1xf32>
  return
}

// -----

// In a loop every pass begins where the one before did plus the advance.
// CHECK-LABEL: @loop
func.func @loop(%whole: memref<9x32x64xbf16>, %b: memref<64x56xbf16>, %d: memref<32x56xbf16>) {
  rt.repeat 4 times (%whole, %b, %d) advancing [2044, 0, 0] : memref<9x32x64xbf16>, memref<64x56xbf16>, memref<32x56xbf16> {
  ^bb0(%a: memref<32x64xbf16>, %w: memref<64x56xbf16>, %y: memref<32x56xbf16>):
    // expected-error@+1 {{expected matrix a with rows at multiples of 16 bytes, got 128 bytes from row to row, the first at 4088}}
    rt.gemm %a, %w into %y : memref<32x64xbf16>, memref<64x56xbf16>, memref<32x56xbf16>
  }
  return
}
