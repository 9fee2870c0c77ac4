// RUN: mpt-opt %s "--library-count-traffic=shared-bytes=232448 sector-bytes=32" | FileCheck %s
// One kernel reads and writes 128 bytes; the GEMM's own traffic does not count.
// CHECK: func.func @layer({{.*}}mpt.traffic = array<i64: 256, 256>
func.func @layer(%a: tensor<4x16xf32>, %b: tensor<16x8xf32>) -> tensor<4x8xf32> {
  %y = library.gemm %a, %b : tensor<4x16xf32>, tensor<16x8xf32> -> tensor<4x8xf32>
  %r = mpt.fusion(%y) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.exp %p : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}
