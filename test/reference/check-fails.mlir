// RUN: not mpt-run %s 2>&1 | FileCheck %s
// Every failed check is reported with its place, value and expectation; the later ones still run.

func.func @fails() {
  %a = mpt.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %b = mpt.constant dense<[[1.0, 2.0], [3.5, 5.0]]> : tensor<2x2xf32>
  // CHECK: check-fails.mlir:[[#@LINE+1]]:3: error: 'check.equal' op expected 3.5{{.*}} (0x40600000), got 3.0{{.*}} (0x40400000) at [1, 0] (2 of 4 elements differ)
  check.equal %a, %b : tensor<2x2xf32>
  // CHECK: check-fails.mlir:[[#@LINE+1]]:3: error: 'check.close' op expected 5.0{{.*}} at [1, 1] (1 of 4 elements differ)
  check.close %a, %b {atol = 0.5, rtol = 0.0} : tensor<2x2xf32>
  %c = mpt.constant dense<0x3F800001> : tensor<f32>
  %d = mpt.constant dense<0x3F800003> : tensor<f32>
  check.ulp_close %c, %d {ulps = 2 : i64} : tensor<f32>
  // CHECK: check-fails.mlir:[[#@LINE+1]]:3: error: 'check.ulp_close' op expected
  check.ulp_close %c, %d {ulps = 1 : i64} : tensor<f32>
  // Zeros of both signs differ in bits, NaN equals NaN.
  %p = mpt.constant dense<[0.0, 0x7FC00000]> : tensor<2xf32>
  %n = mpt.constant dense<[-0.0, 0x7FC00000]> : tensor<2xf32>
  check.close %p, %n {atol = 0.0, rtol = 0.0} : tensor<2xf32>
  // CHECK: check-fails.mlir:[[#@LINE+1]]:3: error: 'check.equal' op expected {{.*}} at [0] (1 of 2 elements differ)
  check.equal %p, %n : tensor<2xf32>
  return
}
