// RUN: mpt-opt %s --library-convert-calls --library-fold-epilogues --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s

// With --batch-invariant the sums of gradients need no order: their GEMMs say so by their part, and their kernels keep
// no errors of additions. The same fusion of forward values is a kernel of its own.
module attributes {mpt.manifest = {batch_invariant = true}} {
// CHECK-LABEL: func.func @step
// CHECK: rt.gemm
// CHECK-NOT: train.part
// CHECK: rt.gemm {{.*}} into %[[D:[0-9]+]] {train.part = #train<part backward>}
// CHECK: rt.launch @[[GRADIENT:kernel[0-9]+]](%[[D]],
// CHECK-NOT: @[[GRADIENT]](
// CHECK: rt.launch @[[FORWARD:kernel[0-9]+]](
// CHECK: func.func private @[[GRADIENT]](
// CHECK-NOT: f64
// CHECK: func.func private @[[FORWARD]](
// CHECK: arith.subf {{.*}}f64
func.func @step(%x: tensor<4x8xf32>, %g: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %y = mpt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %d = mpt.matmul %g, %w {transpose_b = true, train.part = #train<part backward>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %ds = mpt.fusion(%d) : (tensor<4x8xf32>) -> tensor<4xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.reduce sum %p {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
    mpt.yield %s : tensor<4xf32>
  }
  %ys = mpt.fusion(%y) : (tensor<4x8xf32>) -> tensor<4xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.reduce sum %p {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
    mpt.yield %s : tensor<4xf32>
  }
  return %ys, %ds : tensor<4xf32>, tensor<4xf32>
}
}
