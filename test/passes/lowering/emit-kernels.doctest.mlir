// RUN: mpt-opt %s --lowering-emit-kernels | FileCheck %s
// A kernel whose body was a fusion runs over a range; its launch says how far.
// CHECK: func.func @evaluate
// CHECK: rt.launch @kernel0(%{{.*}}, %{{.*}}) {extent = {{[1-9]}}
// CHECK: func.func private @kernel0(%{{.*}}: memref<64x256xf32>, %{{.*}}: memref<64x256xf32>, %[[BEGIN:.*]]: index, %[[END:.*]]: index)
// CHECK-NOT: mpt.fusion
// CHECK: scf.for
func.func @evaluate(%x: memref<64x256xf32> {mpt.name = "x"}, %y: memref<64x256xf32> {mpt.name = "y", mpt.output}) {
  rt.launch @kernel0(%x, %y) {extent = 0 : i64, grain = 0 : i64, num_inputs = 1 : i64} : memref<64x256xf32>, memref<64x256xf32>
  return
}
func.func private @kernel0(%a: memref<64x256xf32>, %b: memref<64x256xf32>) attributes {mpt.kernel, mpt.ops = "relu"} {
  %t = bufferization.to_tensor %a restrict : memref<64x256xf32> to tensor<64x256xf32>
  %r = mpt.fusion(%t) : (tensor<64x256xf32>) -> tensor<64x256xf32> {
  ^bb0(%e: tensor<64x256xf32>):
    %0 = mpt.relu %e : tensor<64x256xf32>
    mpt.yield %0 : tensor<64x256xf32>
  }
  bufferization.materialize_in_destination %r in restrict writable %b : (tensor<64x256xf32>, memref<64x256xf32>) -> ()
  return
}
