// RUN: mpt-opt %s --library-chain-gemms=column-unit=8 | FileCheck %s
// RUN: mpt-opt %s --library-chain-gemms=column-unit=8 --debug-only=library-chain-gemms 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// CHECK-LABEL: func.func @two_readers
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: result of the GEMM is not its own: expected one reader
func.func @two_readers(%x: tensor<32x16xbf16>, %w: tensor<16x64xbf16>) -> (tensor<32x64xbf16>, tensor<32x64xbf16>) {
  %p = mpt.matmul %x, %w : (tensor<32x16xbf16>, tensor<16x64xbf16>) -> tensor<32x64xbf16>
  %g = mpt.gelu %p {form = #mpt<gelu_form tanh>} : tensor<32x64xbf16>
  return %g, %p : tensor<32x64xbf16>, tensor<32x64xbf16>
}

// CHECK-LABEL: func.func @matrix_instead_of_bias
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: not a bias: expected a vector along the columns before GELU
func.func @matrix_instead_of_bias(%x: tensor<32x16xbf16>, %w: tensor<16x64xbf16>, %r: tensor<32x64xbf16>) -> tensor<32x64xbf16> {
  %p = mpt.matmul %x, %w : (tensor<32x16xbf16>, tensor<16x64xbf16>) -> tensor<32x64xbf16>
  %u = mpt.add %p, %r : tensor<32x64xbf16>
  %g = mpt.gelu %u {form = #mpt<gelu_form tanh>} : tensor<32x64xbf16>
  return %g : tensor<32x64xbf16>
}

// CHECK-LABEL: func.func @bias_made_later
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: bias is not there yet: expected one that is made before the GEMM
func.func @bias_made_later(%x: tensor<32x16xbf16>, %w: tensor<16x64xbf16>, %b: tensor<64xf32>) -> tensor<32x64xbf16> {
  %p = mpt.matmul %x, %w : (tensor<32x16xbf16>, tensor<16x64xbf16>) -> tensor<32x64xbf16>
  %narrow = mpt.cast %b : tensor<64xf32> to tensor<64xbf16>
  %v = mpt.broadcast %narrow {dims = array<i64: 1>} : (tensor<64xbf16>) -> tensor<32x64xbf16>
  %u = mpt.add %p, %v : tensor<32x64xbf16>
  %g = mpt.gelu %u {form = #mpt<gelu_form tanh>} : tensor<32x64xbf16>
  return %g : tensor<32x64xbf16>
}

// CHECK-LABEL: func.func @sum_from_elsewhere
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: sum is not in memory: expected one that an earlier GEMM keeps
func.func @sum_from_elsewhere(%dy: tensor<32x16xbf16>, %w: tensor<16x64xbf16>, %u: tensor<32x64xbf16>) -> tensor<32x64xbf16> {
  %p = mpt.matmul %dy, %w : (tensor<32x16xbf16>, tensor<16x64xbf16>) -> tensor<32x64xbf16>
  %g = mpt.gelu_backward %p, %u {form = #mpt<gelu_form tanh>} : tensor<32x64xbf16>
  return %g : tensor<32x64xbf16>
}

// CHECK-LABEL: func.func @row_sums
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: not a bias gradient: expected sums down the columns of a 16-bit matrix
func.func @row_sums(%dy: tensor<128x64xbf16>, %x: tensor<128x16xbf16>) -> (tensor<128xf32>, tensor<64x16xf32>) {
  %s = mpt.reduce sum %dy {axes = array<i64: 1>} : (tensor<128x64xbf16>) -> tensor<128xf32>
  %w = mpt.matmul %dy, %x {transpose_a = true} : (tensor<128x64xbf16>, tensor<128x16xbf16>) -> tensor<64x16xf32>
  return %s, %w : tensor<128xf32>, tensor<64x16xf32>
}

// CHECK-LABEL: func.func @contracts_columns
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: no GEMM beside it: expected one that contracts the summed dimension
func.func @contracts_columns(%dy: tensor<128x64xbf16>, %w: tensor<64x16xbf16>) -> (tensor<64xf32>, tensor<128x16xf32>) {
  %s = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xf32>
  %x = mpt.matmul %dy, %w : (tensor<128x64xbf16>, tensor<64x16xbf16>) -> tensor<128x16xf32>
  return %s, %x : tensor<64xf32>, tensor<128x16xf32>
}

// CHECK-LABEL: func.func @gemm_too_late
// CHECK-NOT: library.gemm
// CHECK: return
// WHY: library-chain-gemms: {{.*}}refusals.mlir:{{.*}}: GEMM runs too late: expected its operands before the first reader of the sums
func.func @gemm_too_late(%dy: tensor<128x64xbf16>, %x: tensor<128x16xbf16>) -> (tensor<64xf32>, tensor<64x16xf32>) {
  %s = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<128x64xbf16>) -> tensor<64xf32>
  %made = mpt.neg %x : tensor<128x16xbf16>
  %w = mpt.matmul %dy, %made {transpose_a = true} : (tensor<128x64xbf16>, tensor<128x16xbf16>) -> tensor<64x16xf32>
  return %s, %w : tensor<64xf32>, tensor<64x16xf32>
}
