// RUN: mpt-opt %s --fusion-rematerialize --split-input-file | FileCheck %s
// RUN: mpt-opt %s --fusion-rematerialize=bytes=1 --split-input-file | FileCheck %s --check-prefix=LESS
// RUN: mpt-opt %s --fusion-rematerialize=effort=0 --split-input-file | FileCheck %s --check-prefix=KEEP
// RUN: mpt-opt %s --fusion-rematerialize --fusion-form --split-input-file | FileCheck %s --check-prefix=FORM
// RUN: mpt-opt %s --fusion-rematerialize=effort=0 --split-input-file --debug-only=fusion-rematerialize 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: fusion-rematerialize: {{.*}}: not rematerialized: expected fewer bytes moved, or more of them saved

// The derivative needs %h and %e. %h is made from the GEMM's result by a bias, %e from %h: keeping the GEMM's result
// alone is cheapest. The activation itself is kept for the GEMM that makes the weight's gradient.
// CHECK-LABEL: func.func @step
// CHECK: %[[P:.*]] = mpt.matmul %arg0
// CHECK: %[[E:.*]] = mpt.erf
// CHECK: %[[A:.*]] = mpt.mul
// CHECK: %[[Y:.*]] = mpt.matmul %[[A]]
// CHECK: mpt.matmul %[[A]], %{{.*}}transpose_a
// CHECK: %[[G:.*]] = mpt.matmul %{{.*}}transpose_b
// CHECK: %[[E2:.*]] = mpt.erf %{{.*}} {mpt.recomputed}
// CHECK: %[[D:.*]] = mpt.add %[[E2]]
// CHECK: mpt.mul %[[G]], %[[D]]

// For one more pass over memory, the activation is not kept either.
// LESS-LABEL: func.func @step
// LESS: %[[A:.*]] = mpt.mul
// LESS: mpt.matmul %[[A]]
// LESS: mpt.erf %{{.*}} {mpt.recomputed}
// LESS: %[[B:.*]] = mpt.mul %{{.*}} {mpt.recomputed}
// LESS: mpt.matmul %[[B]], %{{.*}}transpose_a

// One kernel forward with one result, one backward that reads the GEMM's result: no error function is stored.
// FORM-LABEL: func.func @step
// FORM: %[[P:.*]] = mpt.matmul %arg0
// FORM: mpt.fusion({{.*}}%[[P]]{{.*}}) : {{.*}} -> tensor<128x64xf32>
// FORM: mpt.fusion({{.*}}%[[P]]{{.*}}) : {{.*}} -> tensor<128x64xf32>
// FORM: mpt.erf
// FORM-NOT: mpt.recomputed
func.func @step(%x: tensor<128x32xf32>, %w: tensor<32x64xf32>, %b: tensor<128x64xf32>, %v: tensor<64x64xf32>)
    -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>, tensor<32x64xf32>) {
  %p = mpt.matmul %x, %w : (tensor<128x32xf32>, tensor<32x64xf32>) -> tensor<128x64xf32>
  %h = mpt.add %p, %b : tensor<128x64xf32>
  %e = mpt.erf %h : tensor<128x64xf32>
  %a = mpt.mul %h, %e : tensor<128x64xf32>
  %y = mpt.matmul %a, %v : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<128x64xf32>) -> tensor<f32>
  %gy = mpt.broadcast %loss {dims = array<i64>} : (tensor<f32>) -> tensor<128x64xf32>
  %gv = mpt.matmul %a, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %ga = mpt.matmul %gy, %v {train.part = #train<part backward>, transpose_b = true} : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %d = mpt.add %e, %h : tensor<128x64xf32>
  %gh = mpt.mul %ga, %d : tensor<128x64xf32>
  %gw = mpt.matmul %x, %gh {train.part = #train<part backward>, transpose_a = true} : (tensor<128x32xf32>, tensor<128x64xf32>) -> tensor<32x64xf32>
  return %loss, %gv, %gw : tensor<f32>, tensor<64x64xf32>, tensor<32x64xf32>
}

// -----

// The narrow copy of an input is rematerialized; GEMMs, reductions and random numbers are not.
// CHECK-LABEL: func.func @input
// CHECK: %[[X:.*]] = mpt.cast %arg0
// CHECK: mpt.matmul %[[X]]
// CHECK: %[[R:.*]] = mpt.reduce max
// CHECK-NOT: mpt.reduce max
// CHECK: %[[X2:.*]] = mpt.cast %arg0 {mpt.recomputed}
// CHECK: mpt.matmul %[[X2]]
func.func @input(%x: tensor<128x64xf32>, %w: tensor<64x64xf16>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>) {
  %c = mpt.cast %x : tensor<128x64xf32> to tensor<128x64xf16>
  %y = mpt.matmul %c, %w : (tensor<128x64xf16>, tensor<64x64xf16>) -> tensor<128x64xf32>
  %m = mpt.reduce max %y {axes = array<i64: 1>} : (tensor<128x64xf32>) -> tensor<128xf32>
  %loss = mpt.reduce sum %m {axes = array<i64: 0>} : (tensor<128xf32>) -> tensor<f32>
  %s = mpt.broadcast %m {dims = array<i64: 0>} : (tensor<128xf32>) -> tensor<128x64xf32>
  %n = mpt.cast %s : tensor<128x64xf32> to tensor<128x64xf16>
  %g = mpt.matmul %c, %n {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf16>, tensor<128x64xf16>) -> tensor<64x64xf32>
  return %loss, %g : tensor<f32>, tensor<64x64xf32>
}

// -----

// Nothing states that it is of the backward pass: no change.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: mpt.recomputed
func.func @plain(%x: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %e = mpt.erf %x : tensor<128x64xf32>
  return %e : tensor<128x64xf32>
}

// -----

// The GEMMs take long enough for one more pass over memory: the ReLU's result is rematerialized for the weight's gradient from
// the GEMM's, which its derivative needs anyway. Without effort, it is kept.
// CHECK-LABEL: func.func @cheap
// CHECK: %[[P:.*]] = mpt.matmul %arg0
// CHECK: %[[R:.*]] = mpt.relu %[[P]]
// CHECK: mpt.matmul %[[R]]
// CHECK: %[[A:.*]] = mpt.relu %[[P]] {mpt.recomputed}
// CHECK: mpt.matmul %[[A]], %{{.*}}transpose_a
// KEEP-LABEL: func.func @cheap
// KEEP-NOT: mpt.recomputed
func.func @cheap(%x: tensor<128x8192xf32>, %w: tensor<8192x64xf32>, %v: tensor<64x64xf32>)
    -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>, tensor<8192x64xf32>) {
  %p = mpt.matmul %x, %w : (tensor<128x8192xf32>, tensor<8192x64xf32>) -> tensor<128x64xf32>
  %a = mpt.relu %p : tensor<128x64xf32>
  %y = mpt.matmul %a, %v : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<128x64xf32>) -> tensor<f32>
  %gy = mpt.broadcast %loss {dims = array<i64>} : (tensor<f32>) -> tensor<128x64xf32>
  %gv = mpt.matmul %a, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %ga = mpt.matmul %gy, %v {train.part = #train<part backward>, transpose_b = true} : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %gh = mpt.mul %ga, %p : tensor<128x64xf32>
  %gw = mpt.matmul %x, %gh {train.part = #train<part backward>, transpose_a = true} : (tensor<128x8192xf32>, tensor<128x64xf32>) -> tensor<8192x64xf32>
  return %loss, %gv, %gw : tensor<f32>, tensor<64x64xf32>, tensor<8192x64xf32>
}

// -----

// A chain of sums: all of its terms are kept for other readers. The first sum is rematerialized from two of them; the second would be made
// from three, and is kept; the third is rematerialized from the second.
// CHECK-LABEL: func.func @chain
// CHECK: %[[S1:.*]] = mpt.add %[[A:.*]], %[[B:.*]] :
// CHECK: %[[S2:.*]] = mpt.add %[[S1]], %[[C:.*]] :
// CHECK: %[[S3:.*]] = mpt.add %[[S2]], %[[D:.*]] :
// CHECK: %[[R3:.*]] = mpt.add %[[S2]], %[[D]] {mpt.recomputed}
// CHECK-NEXT: mpt.matmul %[[R3]], %{{.*}}transpose_a
// CHECK-NEXT: mpt.matmul %[[S2]], %{{.*}}transpose_a
// CHECK-NEXT: %[[R1:.*]] = mpt.add %[[A]], %[[B]] {mpt.recomputed}
// CHECK-NEXT: mpt.matmul %[[R1]], %{{.*}}transpose_a
func.func @chain(%x: tensor<128x8192xf32>, %w: tensor<8192x64xf32>, %v: tensor<64x64xf32>)
    -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>,
        tensor<64x64xf32>, tensor<64x64xf32>) {
  %a = mpt.matmul %x, %w : (tensor<128x8192xf32>, tensor<8192x64xf32>) -> tensor<128x64xf32>
  %b = mpt.matmul %a, %v : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %s1 = mpt.add %a, %b : tensor<128x64xf32>
  %c = mpt.matmul %s1, %v : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %s2 = mpt.add %s1, %c : tensor<128x64xf32>
  %d = mpt.matmul %s2, %v : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %s3 = mpt.add %s2, %d : tensor<128x64xf32>
  %y = mpt.matmul %s3, %v : (tensor<128x64xf32>, tensor<64x64xf32>) -> tensor<128x64xf32>
  %loss = mpt.reduce sum %y {axes = array<i64: 0, 1>} : (tensor<128x64xf32>) -> tensor<f32>
  %gy = mpt.broadcast %loss {dims = array<i64>} : (tensor<f32>) -> tensor<128x64xf32>
  %g3 = mpt.matmul %s3, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %g2 = mpt.matmul %s2, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %g1 = mpt.matmul %s1, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %ga = mpt.matmul %a, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %gb = mpt.matmul %b, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %gc = mpt.matmul %c, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  %gd = mpt.matmul %d, %gy {train.part = #train<part backward>, transpose_a = true} : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<64x64xf32>
  return %loss, %g3, %g2, %g1, %ga, %gb, %gc, %gd : tensor<f32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>,
    tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>
}
