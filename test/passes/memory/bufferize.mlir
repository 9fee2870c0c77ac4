// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize | FileCheck %s

train.state parameter @w : tensor<3x4xf32>

// The GEMM is written straight to the output, the new state straight to the state once nobody reads the old value.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[X:.*]]: memref<2x3xf32> {mpt.name = "x"}, %[[Y:.*]]: memref<2x4xf32> {mpt.name = "y", mpt.output})
// CHECK: %[[W:.*]] = rt.state @w : memref<3x4xf32>
// CHECK: rt.gemm %[[X]], %[[W]] into %[[Y]]
// CHECK: %[[XT:.*]] = rt.view %[[X]][0] : memref<2x3xf32> to memref<3x2xf32, strided<[1, 3]>>
// CHECK: rt.gemm %[[XT]], %[[Y]] into %[[W]]
// CHECK-NEXT: return
func.func @step(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"}) {
  %w = train.read @w : tensor<3x4xf32>
  %y = mpt.matmul %x, %w : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %g = mpt.matmul %x, %y {transpose_a = true} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  train.write @w, %g : tensor<3x4xf32>
  return %y : tensor<2x4xf32>
}

// A later reader of the old value forbids it: the state is written at the end.
// CHECK-LABEL: func.func @late_reader
// CHECK: %[[W:.*]] = rt.state @w
// CHECK: %[[G:.*]] = rt.alloc : memref<3x4xf32>
// CHECK: rt.gemm {{.*}} into %[[G]]
// CHECK: rt.gemm %{{.*}}, %[[W]] into
// CHECK: rt.copy %[[G]] to %[[W]]
func.func @late_reader(%x: tensor<2x3xf32>, %d: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = train.read @w : tensor<3x4xf32>
  %g = mpt.matmul %x, %d {transpose_a = true} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  train.write @w, %g : tensor<3x4xf32>
  %y = mpt.matmul %x, %w : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// Heads of attention are views of the projection, and their results are written in the layout of the next one.
// CHECK-LABEL: func.func @heads
// CHECK-NOT: rt.copy
// CHECK-NOT: rt.launch
// CHECK: rt.gemm {{.*}} : memref<2x4x8x16xf32, strided<[1536, 16, 192, 1]>>, memref<2x4x16x8xf32, strided<[1536, 16, 1, 192]>>, memref<2x4x8x8xf32>
// CHECK: rt.gemm {{.*}} memref<2x4x8x16xf32, strided<[512, 16, 64, 1]>>
// CHECK: rt.gemm {{.*}} memref<16x64xf32>
func.func @heads(%qkv: tensor<2x8x192xf32>, %w: tensor<64x64xf32>) -> tensor<16x64xf32> {
  %all = mpt.reshape %qkv : (tensor<2x8x192xf32>) -> tensor<2x8x3x4x16xf32>
  %t = mpt.transpose %all {permutation = array<i64: 2, 0, 3, 1, 4>} : (tensor<2x8x3x4x16xf32>) -> tensor<3x2x4x8x16xf32>
  %q0 = mpt.slice %t {starts = array<i64: 0, 0, 0, 0, 0>, sizes = array<i64: 1, 2, 4, 8, 16>, strides = array<i64: 1, 1, 1, 1, 1>} : (tensor<3x2x4x8x16xf32>) -> tensor<1x2x4x8x16xf32>
  %k0 = mpt.slice %t {starts = array<i64: 1, 0, 0, 0, 0>, sizes = array<i64: 1, 2, 4, 8, 16>, strides = array<i64: 1, 1, 1, 1, 1>} : (tensor<3x2x4x8x16xf32>) -> tensor<1x2x4x8x16xf32>
  %v0 = mpt.slice %t {starts = array<i64: 2, 0, 0, 0, 0>, sizes = array<i64: 1, 2, 4, 8, 16>, strides = array<i64: 1, 1, 1, 1, 1>} : (tensor<3x2x4x8x16xf32>) -> tensor<1x2x4x8x16xf32>
  %q = mpt.reshape %q0 : (tensor<1x2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  %k = mpt.reshape %k0 : (tensor<1x2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  %v = mpt.reshape %v0 : (tensor<1x2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  %s = mpt.matmul %q, %k {transpose_b = true} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> tensor<2x4x8x8xf32>
  %o = mpt.matmul %s, %v : (tensor<2x4x8x8xf32>, tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  %ot = mpt.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
  %flat = mpt.reshape %ot : (tensor<2x8x4x16xf32>) -> tensor<16x64xf32>
  %y = mpt.matmul %flat, %w : (tensor<16x64xf32>, tensor<64x64xf32>) -> tensor<16x64xf32>
  return %y : tensor<16x64xf32>
}

// Convolutions run in channels-last memory; weights stay as ONNX stores them.
// CHECK-LABEL: func.func @conv
// CHECK: %[[Y:.*]] = rt.alloc : memref<2x8x6x6xf32, strided<[288, 1, 48, 8]>>
// CHECK: rt.conv forward %{{.*}}, %{{.*}}, %[[Y]]
// CHECK-SAME: memref<2x1x8x8xf32>, memref<8x1x3x3xf32>, memref<2x8x6x6xf32, strided<[288, 1, 48, 8]>>
// CHECK: rt.conv backward_weights %{{.*}}, %{{.*}}, %[[Y]]
func.func @conv(%x: tensor<2x1x8x8xf32>, %w: tensor<8x1x3x3xf32>) -> tensor<8x1x3x3xf32> {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x1x8x8xf32>, tensor<8x1x3x3xf32>) -> tensor<2x8x6x6xf32>
  %g = mpt.conv_backward_weights %x, %y {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x1x8x8xf32>, tensor<2x8x6x6xf32>) -> tensor<8x1x3x3xf32>
  return %g : tensor<8x1x3x3xf32>
}

// GEMMs write their part of a concatenation.
// CHECK-LABEL: func.func @concat
// CHECK-SAME: %[[OUT:[^:]*]]: memref<2x8xf32> {mpt.output}
// CHECK: %[[LEFT:.*]] = rt.view %[[OUT]][0] : memref<2x8xf32> to memref<2x4xf32, strided<[8, 1]>>
// CHECK: rt.gemm {{.*}} into %[[LEFT]]
// CHECK: %[[RIGHT:.*]] = rt.view %[[OUT]][4] : memref<2x8xf32> to memref<2x4xf32, strided<[8, 1]>>
// CHECK: rt.gemm {{.*}} into %[[RIGHT]]
// CHECK-NEXT: return
func.func @concat(%x: tensor<2x3xf32>, %a: tensor<3x4xf32>, %b: tensor<3x4xf32>) -> tensor<2x8xf32> {
  %l = mpt.matmul %x, %a : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %r = mpt.matmul %x, %b : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %y = mpt.concat %l, %r {axis = 1 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
  return %y : tensor<2x8xf32>
}

// A sum that borrows the memory of the state it is made from is written there; the state is emptied at the end.
// CHECK-LABEL: func.func @lent
// CHECK: %[[W:.*]] = rt.state @w
// CHECK-NOT: rt.alloc
// CHECK: rt.launch @{{.*}}(%[[W]], %arg0, %[[W]])
// CHECK: rt.gemm %[[W]]
// CHECK: rt.copy %{{.*}} to %[[W]]
func.func @lent(%g: tensor<3x4xf32>) -> tensor<3x3xf32> {
  %zero = mpt.constant dense<0.0> : tensor<3x4xf32>
  %w = train.read @w : tensor<3x4xf32>
  %sum = mpt.fusion(%w, %g) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32> {
  ^bb0(%p: tensor<3x4xf32>, %q: tensor<3x4xf32>):
    %s = mpt.add %p, %q : tensor<3x4xf32>
    mpt.yield %s : tensor<3x4xf32>
  }
  train.write @w, %zero : tensor<3x4xf32>
  %m = mpt.matmul %sum, %g {transpose_b = true} : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x3xf32>
  return %m : tensor<3x3xf32>
}
