// RUN: mpt-opt %s "--fusion-form=shared-sums column-outputs kept-rows bundles memory-bound" --split-input-file | FileCheck %s
// RUN: mpt-opt %s --fusion-form --split-input-file | FileCheck %s --check-prefix=CPU

// A loss by rows and its gradient: the gradients of the elements are made with the rows' sums, on a device, and
// the sum of the loss comes behind. The gradient waits for a number that does not wait for the rows.
// CHECK-LABEL: func.func @loss
// CHECK: %[[COUNT:.*]] = mpt.fusion(%arg1)
// CHECK: %[[BOTH:.*]]:2 = mpt.fusion(%arg0, %[[COUNT]])
// CHECK: mpt.reduce{{ *}}sum
// CHECK: mpt.log
// CHECK: mpt.yield {{.*}} : tensor<16xf32>, tensor<16x50000xf16>
// CHECK: mpt.fusion(%[[BOTH]]#0
// CHECK-NOT: mpt.fusion
// CHECK: mpt.matmul %[[BOTH]]#1
// CPU-LABEL: func.func @loss
// CPU: mpt.fusion(%arg0) : (tensor<16x50000xf16>) -> tensor<16xf32>
// CPU: mpt.yield {{.*}} : tensor<16x50000xf16>
func.func @loss(%x: tensor<16x50000xf16>, %w: tensor<16xf32>, %v: tensor<8x50000xf16>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<16x8xf16>) {
  %wide = mpt.cast %x : tensor<16x50000xf16> to tensor<16x50000xf32>
  %e = mpt.exp %wide : tensor<16x50000xf32>
  %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<16x50000xf32>) -> tensor<16xf32>
  %l = mpt.log %s : tensor<16xf32>
  %count = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
  %total = mpt.reduce sum %l {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
  %loss = mpt.div %total, %count : tensor<f32>
  %lb = mpt.broadcast %l {dims = array<i64: 0>} : (tensor<16xf32>) -> tensor<16x50000xf32>
  %again = mpt.cast %x {mpt.recomputed} : tensor<16x50000xf16> to tensor<16x50000xf32>
  %d = mpt.sub %again, %lb : tensor<16x50000xf32>
  %p = mpt.exp %d : tensor<16x50000xf32>
  %cb = mpt.broadcast %count {dims = array<i64>} : (tensor<f32>) -> tensor<16x50000xf32>
  %g = mpt.div %p, %cb : tensor<16x50000xf32>
  %narrow = mpt.cast %g : tensor<16x50000xf32> to tensor<16x50000xf16>
  %dy = mpt.matmul %narrow, %v {train.part = #train<part backward>, numerics = #mpt.numerics<in = f16, acc = f32, out = f16>, transpose_b = true} : (tensor<16x50000xf16>, tensor<8x50000xf16>) -> tensor<16x8xf16>
  return %loss, %dy : tensor<f32>, tensor<16x8xf16>
}

// -----

// A sum of the gradient's elements would be a third to wait for: no team keeps the row until then.
// CHECK-LABEL: func.func @scaled
// CHECK: mpt.fusion(%arg0) : (tensor<16x50000xf16>) -> tensor<16xf32>
// CHECK: mpt.fusion
// CHECK: mpt.yield {{.*}}tensor<16x50000xf16>
func.func @scaled(%x: tensor<16x50000xf16>, %w: tensor<16xf32>, %v: tensor<8x50000xf16>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<16x8xf16>, tensor<16xf32>) {
  %wide = mpt.cast %x : tensor<16x50000xf16> to tensor<16x50000xf32>
  %e = mpt.exp %wide : tensor<16x50000xf32>
  %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<16x50000xf32>) -> tensor<16xf32>
  %l = mpt.log %s : tensor<16xf32>
  %count = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
  %total = mpt.reduce sum %l {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
  %loss = mpt.div %total, %count : tensor<f32>
  %lb = mpt.broadcast %l {dims = array<i64: 0>} : (tensor<16xf32>) -> tensor<16x50000xf32>
  %again = mpt.cast %x {mpt.recomputed} : tensor<16x50000xf16> to tensor<16x50000xf32>
  %d = mpt.sub %again, %lb : tensor<16x50000xf32>
  %p = mpt.exp %d : tensor<16x50000xf32>
  %cb = mpt.broadcast %count {dims = array<i64>} : (tensor<f32>) -> tensor<16x50000xf32>
  %g = mpt.div %p, %cb : tensor<16x50000xf32>
  %narrow = mpt.cast %g : tensor<16x50000xf32> to tensor<16x50000xf16>
  %m = mpt.reduce max %g {axes = array<i64: 1>} : (tensor<16x50000xf32>) -> tensor<16xf32>
  %dy = mpt.matmul %narrow, %v {train.part = #train<part backward>, numerics = #mpt.numerics<in = f16, acc = f32, out = f16>, transpose_b = true} : (tensor<16x50000xf16>, tensor<8x50000xf16>) -> tensor<16x8xf16>
  return %loss, %dy, %m : tensor<f32>, tensor<16x8xf16>, tensor<16xf32>
}
