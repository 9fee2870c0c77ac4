// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s

// Memory begins each row of a GEMM's matrix at 16 bytes: an element-wise kernel keeps its wide vectors, and one more thread a row makes the rest.
// CHECK: func.func private @kernel0
// CHECK-SAME: memref<64x1003xbf16, strided<[1008, 1]>>
// CHECK-SAME: mpt.grid = array<i64: 126, 1, 1>
// CHECK-SAME: mpt.schedule = "pointwise"
// CHECK: arith.remui
// CHECK: vector.load {{.*}}alignment = 16{{.*}}vector<8xbf16>
// CHECK: vector.store {{.*}}alignment = 16{{.*}}vector<8xbf16>
// CHECK: scf.for
// CHECK: memref.load
func.func @ragged_rows(%x: tensor<64x32xbf16>, %w: tensor<32x1003xbf16>, %v: tensor<1003x32xbf16>) -> tensor<64x32xbf16> {
  %y = mpt.matmul %x, %w : (tensor<64x32xbf16>, tensor<32x1003xbf16>) -> tensor<64x1003xbf16>
  %r = mpt.fusion(%y) : (tensor<64x1003xbf16>) -> tensor<64x1003xbf16> {
  ^bb0(%a: tensor<64x1003xbf16>):
    %s = mpt.exp %a : tensor<64x1003xbf16>
    mpt.yield %s : tensor<64x1003xbf16>
  }
  %z = mpt.matmul %r, %v : (tensor<64x1003xbf16>, tensor<1003x32xbf16>) -> tensor<64x32xbf16>
  return %z : tensor<64x32xbf16>
}
