// RUN: mpt-run %s --as=sm_90
// RUN: not mpt-run %s 2>&1 | FileCheck %s --check-prefixes=GROUP,CONV
// RUN: not mpt-run %s --as=sm_89 2>&1 | FileCheck %s --check-prefix=GROUP
// RUN: not mpt-run %s --as=sm_90+fast-sums 2>&1 | FileCheck %s --check-prefix=PROMOTED

// Sums as Hopper's Tensor Cores make them, and the ones that other accumulators get wrong.
// GROUP: :[[#@LINE+13]]:3: error:
// PROMOTED-NOT: error:
// PROMOTED: :[[#@LINE+23]]:3: error:
// PROMOTED-NOT: error:
// CONV: :[[#@LINE+32]]:3: error:

// 32 products at once: the third, 2^-14, is below 2^-13 of the first two, which cancel. sm_89 adds up 16 and then 16.
func.func @group() {
  %x = mpt.constant dense<[[128.0, -128.0, 0.0078125]]> : tensor<1x3xf8E4M3FN>
  %a = mpt.pad %x {low = array<i64: 0, 0>, high = array<i64: 15, 11>, interior = array<i64: 0, 9>, value = 0.0 : f64} : (tensor<1x3xf8E4M3FN>) -> tensor<16x32xf8E4M3FN>
  %b = mpt.constant dense<0.0078125> : tensor<32x16xf8E4M3FN>
  %y = mpt.matmul %a, %b : (tensor<16x32xf8E4M3FN>, tensor<32x16xf8E4M3FN>) -> tensor<16x16xf32>
  %e = mpt.constant dense<0.0> : tensor<16x16xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<16x16xf32>
  return
}

// Partial sums of 128 products add up in FP32: 1 of the first, 2^-14 of the second.
func.func @promoted() {
  %x = mpt.constant dense<[[128.0, 0.0078125]]> : tensor<1x2xf8E4M3FN>
  %a = mpt.pad %x {low = array<i64: 0, 0>, high = array<i64: 15, 55>, interior = array<i64: 0, 199>, value = 0.0 : f64} : (tensor<1x2xf8E4M3FN>) -> tensor<16x256xf8E4M3FN>
  %b = mpt.constant dense<0.0078125> : tensor<256x16xf8E4M3FN>
  %y = mpt.matmul %a, %b : (tensor<16x256xf8E4M3FN>, tensor<256x16xf8E4M3FN>) -> tensor<16x16xf32>
  %r = mpt.slice %y {starts = array<i64: 0, 0>, sizes = array<i64: 1, 16>, strides = array<i64: 1, 1>} : (tensor<16x16xf32>) -> tensor<1x16xf32>
  %e = mpt.constant dense<1.00006103515625> : tensor<1x16xf32>
  check.ulp_close %r, %e {ulps = 0 : i64} : tensor<1x16xf32>
  return
}

// A convolution runs along channels in each kernel position: 2^-16 beside 1024 - 1024 is lost, the other is not.
func.func @conv() {
  %t = mpt.constant dense<[[[[1024.0, 0.0]], [[-1024.0, 1.52587890625e-05]], [[1.52587890625e-05, 0.0]]]]> : tensor<1x3x1x2xf16>
  %x = mpt.pad %t {low = array<i64: 0, 0, 0, 0>, high = array<i64: 0, 13, 0, 0>, interior = array<i64: 0, 0, 0, 0>, value = 0.0 : f64} : (tensor<1x3x1x2xf16>) -> tensor<1x16x1x2xf16>
  %w = mpt.constant dense<1.0> : tensor<1x16x1x2xf16>
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<1x16x1x2xf16>, tensor<1x16x1x2xf16>) -> tensor<1x1x1x1xf32>
  %e = mpt.constant dense<1.52587890625e-05> : tensor<1x1x1x1xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<1x1x1x1xf32>
  return
}
