// RUN: mpt-run %s
// RUN: sed 's/{batch_invariant = true}/{}/' %s > %t.mlir
// RUN: not mpt-run %t.mlir 2>&1 | FileCheck %s

// With --batch-invariant sums of BF16 products are taken as matrix tiles take them, all others one by one.
module attributes {mpt.manifest = {batch_invariant = true}} {
// Even terms 2^24 + 1 are 2^24, odd ones -2^24 + 1 are exact: 1. One by one it is 2.
// CHECK: :[[#@LINE+6]]:3: error:
func.func @two_chains() {
  %a = mpt.constant dense<[[4096.0, -4096.0, 1.0, 1.0]]> : tensor<1x4xbf16>
  %b = mpt.constant dense<[[4096.0], [4096.0], [1.0], [1.0]]> : tensor<4x1xbf16>
  %y = mpt.matmul %a, %b : (tensor<1x4xbf16>, tensor<4x1xbf16>) -> tensor<1x1xf32>
  %e = mpt.constant dense<1.0> : tensor<1x1xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<1x1xf32>
  return
}

// The type that operands are read in decides.
func.func @read() {
  %a = mpt.constant dense<[[4096.0, -4096.0, 1.0, 1.0]]> : tensor<1x4xf32>
  %b = mpt.constant dense<[[4096.0], [4096.0], [1.0], [1.0]]> : tensor<4x1xf32>
  %y = library.gemm %a, %b {read_as = bf16} : tensor<1x4xf32>, tensor<4x1xf32> -> tensor<1x1xf32>
  %e = mpt.constant dense<1.0> : tensor<1x1xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<1x1xf32>
  %z = mpt.matmul %a, %b : (tensor<1x4xf32>, tensor<4x1xf32>) -> tensor<1x1xf32>
  %f = mpt.constant dense<2.0> : tensor<1x1xf32>
  check.ulp_close %z, %f {ulps = 0 : i64} : tensor<1x1xf32>
  return
}

// Chains end after 32 terms: what follows adds to their sum, 0.
func.func @blocks() {
  %t = mpt.constant dense<[[4096.0, -4096.0, 1.0]]> : tensor<1x3xbf16>
  %a = mpt.pad %t {low = array<i64: 0, 0>, high = array<i64: 0, 0>, interior = array<i64: 0, 30>, value = 0.0 : f64} : (tensor<1x3xbf16>) -> tensor<1x63xbf16>
  %b = mpt.constant dense<4096.0> : tensor<63x1xbf16>
  %y = mpt.matmul %a, %b : (tensor<1x63xbf16>, tensor<63x1xbf16>) -> tensor<1x1xf32>
  %e = mpt.constant dense<4096.0> : tensor<1x1xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<1x1xf32>
  return
}

// Subnormal sums and operands are 0.
// CHECK: :[[#@LINE+6]]:3: error:
func.func @flushed() {
  %a = mpt.constant dense<[[5.42101086242752e-20, 0.0], [5.877471754111438e-39, 1.0]]> : tensor<2x2xbf16>
  %b = mpt.constant dense<[[2.710505431213761e-20], [0.0]]> : tensor<2x1xbf16>
  %y = mpt.matmul %a, %b : (tensor<2x2xbf16>, tensor<2x1xbf16>) -> tensor<2x1xf32>
  %e = mpt.constant dense<0.0> : tensor<2x1xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<2x1xf32>
  return
}

// So are sums of convolutions of whole blocks of channels; of others they are taken one by one.
// CHECK: :[[#@LINE+8]]:3: error:
func.func @conv() {
  %t = mpt.constant dense<[[[[4096.0]], [[-4096.0]], [[1.0]], [[1.0]]]]> : tensor<1x4x1x1xbf16>
  %x = mpt.pad %t {low = array<i64: 0, 0, 0, 0>, high = array<i64: 0, 28, 0, 0>, interior = array<i64: 0, 0, 0, 0>, value = 0.0 : f64} : (tensor<1x4x1x1xbf16>) -> tensor<1x32x1x1xbf16>
  %u = mpt.constant dense<[[[[4096.0]], [[4096.0]], [[1.0]], [[1.0]]]]> : tensor<1x4x1x1xbf16>
  %w = mpt.pad %u {low = array<i64: 0, 0, 0, 0>, high = array<i64: 0, 28, 0, 0>, interior = array<i64: 0, 0, 0, 0>, value = 0.0 : f64} : (tensor<1x4x1x1xbf16>) -> tensor<1x32x1x1xbf16>
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<1x32x1x1xbf16>, tensor<1x32x1x1xbf16>) -> tensor<1x1x1x1xf32>
  %e = mpt.constant dense<1.0> : tensor<1x1x1x1xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<1x1x1x1xf32>
  %z = mpt.conv %t, %u {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<1x4x1x1xbf16>, tensor<1x4x1x1xbf16>) -> tensor<1x1x1x1xf32>
  %f = mpt.constant dense<2.0> : tensor<1x1x1x1xf32>
  check.ulp_close %z, %f {ulps = 0 : i64} : tensor<1x1x1x1xf32>
  return
}
}
