// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_80 -o /dev/null | FileCheck %s --check-prefix=PTX

// Sixteen bytes of the narrowest type a thread, predicated as a whole; the output may take the input's place.
// CHECK: func.func private @kernel0
// CHECK-SAME: mpt.block = array<i64: 64, 1, 1>
// CHECK-SAME: mpt.grid = array<i64: 128, 1, 1>
// CHECK-SAME: mpt.in_place = array<i64: 0, 2, 1, 2>
// CHECK-SAME: mpt.schedule = "pointwise"
// CHECK: scf.if
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<65536xf16>, vector<8xf16>
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<65536xf16>, vector<8xf16>
// CHECK: vector.store {{.*}} {alignment = 16 : i64}
// PTX: .visible .entry kernel0
// PTX: .reqntid 64
// PTX: {{ld.global.*v4}}
// PTX: {{st.global.*v4}}
func.func @wide(%x: tensor<256x256xf16>, %y: tensor<256x256xf16>) -> tensor<256x256xf16> {
  %r = mpt.fusion(%x, %y) : (tensor<256x256xf16>, tensor<256x256xf16>) -> tensor<256x256xf16> {
  ^bb0(%a: tensor<256x256xf16>, %b: tensor<256x256xf16>):
    %s = mpt.add %a, %b : tensor<256x256xf16>
    %t = mpt.tanh %s : tensor<256x256xf16>
    mpt.yield %t : tensor<256x256xf16>
  }
  return %r : tensor<256x256xf16>
}

// A flat range that no vector divides leaves its rest to one more thread.
// CHECK: func.func private @kernel1
// CHECK-SAME: mpt.schedule = "pointwise"
// CHECK: vector.load {{.*}}vector<4xf32>
// CHECK: arith.cmpi eq
// CHECK: scf.for
// CHECK: memref.load
func.func @ragged(%x: tensor<1003xf32>) -> tensor<1003xf32> {
  %r = mpt.fusion(%x) : (tensor<1003xf32>) -> tensor<1003xf32> {
  ^bb0(%a: tensor<1003xf32>):
    %s = mpt.exp %a : tensor<1003xf32>
    mpt.yield %s : tensor<1003xf32>
  }
  return %r : tensor<1003xf32>
}
