// RUN: mpt-opt %s --precision-widen-reductions | FileCheck %s
// RUN: mpt-opt %s --precision-widen-reductions --precision-verify | FileCheck %s
// RUN: not mpt-opt %s --precision-verify 2>&1 | FileCheck %s --check-prefix=BEFORE

// BEFORE: expected an accumulator type for 'f16' inputs: run precision-widen-reductions
// BEFORE: expected an accumulator of at least 'f32', got 'bf16'

// CHECK-LABEL: func.func @accumulators
// CHECK: mpt.matmul {{.*}}numerics = #mpt.numerics<in = f16, acc = f32, out = f16>
// CHECK: mpt.reduce sum {{.*}}numerics = #mpt.numerics<in = bf16, acc = f32, out = bf16>
// CHECK: mpt.reduce sum {{.*}}numerics = #mpt.numerics<in = f16, acc = f64, out = f32>
// CHECK: mpt.matmul {{.*}}numerics = #mpt.numerics<in = f64, acc = f64, out = f64>
// CHECK: mpt.reduce sum %{{.*}} {axes = array<i64: 0>} : (tensor<4x4xi32>)
func.func @accumulators(%a: tensor<4x4xf16>, %b: tensor<4x4xbf16>, %d: tensor<4x4xf64>, %i: tensor<4x4xi32>) {
  %0 = mpt.matmul %a, %a : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>
  %1 = mpt.reduce sum %b {axes = array<i64: 0>, numerics = #mpt.numerics<in = bf16, acc = bf16, out = bf16>} : (tensor<4x4xbf16>) -> tensor<4xbf16>
  %2 = mpt.reduce sum %a {axes = array<i64: 0>, numerics = #mpt.numerics<in = f16, acc = f64, out = f32>} : (tensor<4x4xf16>) -> tensor<4xf32>
  %3 = mpt.matmul %d, %d : (tensor<4x4xf64>, tensor<4x4xf64>) -> tensor<4x4xf64>
  %4 = mpt.reduce sum %i {axes = array<i64: 0>} : (tensor<4x4xi32>) -> tensor<4xi32>
  return
}
