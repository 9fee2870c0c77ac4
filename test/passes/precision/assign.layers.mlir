// RUN: mpt-opt %s --precision-assign=policy=fp8-current | FileCheck %s

// Backward passes of files have locations of their own. Their GEMMs belong to the layer whose weight they read, or make
// the gradient of; GEMMs of attention to the op that reads the same values.
// CHECK: mpt.matmul {{.*}}rule = "policy.where first -> storage
// CHECK: mpt.matmul {{.*}}rule = "class contraction -> narrow
// CHECK: mpt.matmul {{.*}}rule = "policy.where unweighted -> storage
// CHECK: mpt.matmul {{.*}}rule = "policy.where last -> storage
// CHECK: train.scale_loss
// CHECK: mpt.matmul {{.*}}rule = "policy.where last -> storage
// CHECK: mpt.matmul {{.*}}rule = "policy.where last -> storage
// CHECK: mpt.matmul {{.*}}rule = "policy.where unweighted -> storage
// CHECK: mpt.matmul {{.*}}rule = "policy.where unweighted -> storage
// CHECK: mpt.matmul {{.*}}rule = "class contraction -> narrow
// CHECK: mpt.matmul {{.*}}rule = "class contraction -> narrow
// CHECK: mpt.matmul {{.*}}rule = "policy.where first -> storage
module {
  train.state parameter @a : tensor<4x16xf32> = dense<0.25> : tensor<4x16xf32>
  train.state parameter @b : tensor<16x8xf32> = dense<0.5> : tensor<16x8xf32>
  train.state parameter @c : tensor<16x2xf32> = dense<0.75> : tensor<16x2xf32>
  func.func @step(%x: tensor<8x4xf32> {mpt.name = "x"}) -> (tensor<8x2xf32> {mpt.name = "y"}) {
    %a = train.read @a : tensor<4x16xf32>
    %b = train.read @b : tensor<16x8xf32>
    %c = train.read @c : tensor<16x2xf32>
    %h = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32> loc("first")
    %q = mpt.matmul %h, %b : (tensor<8x16xf32>, tensor<16x8xf32>) -> tensor<8x8xf32> loc("second")
    %o = mpt.matmul %q, %h : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32> loc("attention")
    %y = mpt.matmul %o, %c : (tensor<8x16xf32>, tensor<16x2xf32>) -> tensor<8x2xf32> loc("third")
    %one = mpt.constant dense<1.0> : tensor<8x2xf32>
    %scale = mpt.constant dense<1.0> : tensor<f32>
    %dy = train.scale_loss %one, %scale {mpt.seed} : tensor<8x2xf32>, tensor<f32>
    %ct = mpt.transpose %c {permutation = array<i64: 1, 0>} : (tensor<16x2xf32>) -> tensor<2x16xf32>
    %do = mpt.matmul %dy, %ct : (tensor<8x2xf32>, tensor<2x16xf32>) -> tensor<8x16xf32> loc("mm_0")
    %dct = mpt.matmul %dy, %o {transpose_a = true} : (tensor<8x2xf32>, tensor<8x16xf32>) -> tensor<2x16xf32> loc("mm_1")
    %dc = mpt.transpose %dct {permutation = array<i64: 1, 0>} : (tensor<2x16xf32>) -> tensor<16x2xf32>
    %dq = mpt.matmul %do, %h {transpose_b = true} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32> loc("mm_2")
    %dh0 = mpt.matmul %q, %do {transpose_a = true} : (tensor<8x8xf32>, tensor<8x16xf32>) -> tensor<8x16xf32> loc("mm_3")
    %db = mpt.matmul %h, %dq {transpose_a = true} : (tensor<8x16xf32>, tensor<8x8xf32>) -> tensor<16x8xf32> loc("mm_4")
    %dh1 = mpt.matmul %dq, %b {transpose_b = true} : (tensor<8x8xf32>, tensor<16x8xf32>) -> tensor<8x16xf32> loc("mm_5")
    %dh = mpt.add %dh0, %dh1 : tensor<8x16xf32>
    %da = mpt.matmul %x, %dh {transpose_a = true} : (tensor<8x4xf32>, tensor<8x16xf32>) -> tensor<4x16xf32> loc("mm_6")
    %ga = train.gradient @a, %da : tensor<4x16xf32>
    %gb = train.gradient @b, %db : tensor<16x8xf32>
    %gc = train.gradient @c, %dc : tensor<16x2xf32>
    train.write @a, %ga : tensor<4x16xf32>
    train.write @b, %gb : tensor<16x8xf32>
    train.write @c, %gc : tensor<16x2xf32>
    return %y : tensor<8x2xf32>
  }
}
