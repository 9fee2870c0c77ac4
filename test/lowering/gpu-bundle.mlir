// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_90 -o /dev/null | FileCheck %s --check-prefix=PTX

// Tensors that are updated alike share a launch: the block's number finds the tensor, whose results may take the place of
// its operands.
// CHECK: func.func private @kernel0
// CHECK-SAME: mpt.grid = array<i64: 13, 1, 1>
// CHECK-SAME: mpt.in_place = array<i64: 1, 5, 3, 6, 2, 5, 4, 6>
// CHECK-SAME: mpt.schedule = "bundle"
// CHECK: scf.if {{.*}} -> (memref<f32>, memref<8192xf32>, memref<8192xf32>, memref<8192xf32>, index, index)
// CHECK: scf.for
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<8192xf32>, vector<4xf32>
// CHECK: vector.store {{.*}} {alignment = 16 : i64}
// PTX: .visible .entry kernel0
// PTX: ld.global.v4
// PTX: st.global.v4
func.func @update(%r: tensor<f32>, %g: tensor<37x111xf32>, %w: tensor<37x111xf32>, %h: tensor<8192xf32>,
                  %v: tensor<8192xf32>) -> (tensor<37x111xf32>, tensor<8192xf32>) {
  %n:2 = mpt.fusion(%r, %g, %w, %h, %v) : (tensor<f32>, tensor<37x111xf32>, tensor<37x111xf32>, tensor<8192xf32>,
      tensor<8192xf32>) -> (tensor<37x111xf32>, tensor<8192xf32>) {
  ^bb0(%0: tensor<f32>, %1: tensor<37x111xf32>, %2: tensor<37x111xf32>, %3: tensor<8192xf32>, %4: tensor<8192xf32>):
    %a = mpt.broadcast %0 {dims = array<i64>} : (tensor<f32>) -> tensor<37x111xf32>
    %b = mpt.mul %a, %1 : tensor<37x111xf32>
    %c = mpt.sub %2, %b : tensor<37x111xf32>
    %d = mpt.broadcast %0 {dims = array<i64>} : (tensor<f32>) -> tensor<8192xf32>
    %e = mpt.mul %d, %3 : tensor<8192xf32>
    %f = mpt.sub %4, %e : tensor<8192xf32>
    mpt.yield %c, %f : tensor<37x111xf32>, tensor<8192xf32>
  }
  return %n#0, %n#1 : tensor<37x111xf32>, tensor<8192xf32>
}

// An operand of a few elements that each row reads one of: flat, all would read behind it.
// CHECK-LABEL: func.func private @kernel1
// CHECK-SAME: mpt.schedule = "pointwise"
func.func @masks(%m: tensor<3xf32>, %x: tensor<3x7xf32>, %y: tensor<3x7xf32>) -> (tensor<3x7xf32>, tensor<3x7xf32>) {
  %n:2 = mpt.fusion(%m, %x, %y) : (tensor<3xf32>, tensor<3x7xf32>, tensor<3x7xf32>) -> (tensor<3x7xf32>, tensor<3x7xf32>) {
  ^bb0(%0: tensor<3xf32>, %1: tensor<3x7xf32>, %2: tensor<3x7xf32>):
    %a = mpt.broadcast %0 {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x7xf32>
    %b = mpt.mul %a, %1 : tensor<3x7xf32>
    %c = mpt.broadcast %0 {dims = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x7xf32>
    %d = mpt.mul %c, %2 : tensor<3x7xf32>
    mpt.yield %b, %d : tensor<3x7xf32>, tensor<3x7xf32>
  }
  return %n#0, %n#1 : tensor<3x7xf32>, tensor<3x7xf32>
}
