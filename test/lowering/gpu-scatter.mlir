// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s

// Rows of a table's gradient: the start everywhere, the places of the updates, their links, the sums of slices of 256 updates, and
// the sums of all slices. Of the result and of scratch no more is moved than the updates reach: 600 rows of 8 halves, and
// sums of slices in FP32.
// CHECK: func.func private @[[K:.*]](%{{.*}}: memref<600xi64>, %{{.*}}: memref<600x8xf16>, %{{.*}}: memref<1000x8xf16>, %{{.*}}: memref<34560xi8>)
// CHECK-SAME: mpt.schedule = "scatter"
// CHECK: @[[K]]_1
// CHECK-SAME: mpt.moved = array<i64: -1, -1, 9600, 3072>
// CHECK-SAME: mpt.schedule = "scatter-places"
// CHECK: @[[K]]_2
// CHECK-SAME: mpt.schedule = "scatter-links"
// CHECK: @[[K]]_3
// CHECK-SAME: mpt.moved = array<i64: -1, -1, 9600, 31488>
// CHECK-SAME: mpt.schedule = "scatter-sums"
// CHECK: arith.addf {{.*}} : vector<4xf32>
// CHECK: @[[K]]_4
// CHECK-SAME: mpt.schedule = "scatter-joins"
func.func @rows(%i: tensor<600xi64>, %u: tensor<600x8xf16>) -> tensor<1000x8xf16> {
  %y = mpt.fusion(%i, %u) : (tensor<600xi64>, tensor<600x8xf16>) -> tensor<1000x8xf16> {
  ^bb0(%a: tensor<600xi64>, %b: tensor<600x8xf16>):
    %s = mpt.scatter_add %a, %b {axis = 0} : (tensor<600xi64>, tensor<600x8xf16>) -> tensor<1000x8xf16>
    mpt.yield %s : tensor<1000x8xf16>
  }
  return %y : tensor<1000x8xf16>
}
