// RUN: mpt-opt %s --split-input-file --verify-diagnostics --lowering-emit-kernels | FileCheck %s
// RUN: mpt-opt %s --split-input-file --verify-diagnostics "--lowering-emit-kernels=target=cuda flags=--arch=sm_90" -o /dev/null

// A kernel that reads a state elsewhere than where it writes has its result apart; one that reads it at the same index has not.
// CHECK-LABEL: func.func @step
// CHECK: %[[W:.*]] = rt.state @w
// CHECK: rt.launch @kernel1(%[[W]], %[[W]])
// CHECK: %[[T:.*]] = rt.view %[[W]][0] : memref<8x8xf32> to memref<8x8xf32, strided<[1, 8]>>
// CHECK: %[[OWN:.*]] = rt.alloc : memref<8x8xf32>
// CHECK: rt.launch @kernel0(%[[T]], %[[OWN]])
// CHECK: rt.copy %[[OWN]] to %[[W]]
train.state parameter @w : tensor<8x8xf32>
func.func @step() {
  %w = rt.state @w : memref<8x8xf32>
  rt.launch @kernel1(%w, %w) {extent = 0 : i64, grain = 0 : i64, num_inputs = 1 : i64} : memref<8x8xf32>, memref<8x8xf32>
  %t = rt.view %w[0] : memref<8x8xf32> to memref<8x8xf32, strided<[1, 8]>>
  rt.launch @kernel0(%t, %w) {extent = 0 : i64, grain = 0 : i64, num_inputs = 1 : i64} : memref<8x8xf32, strided<[1, 8]>>, memref<8x8xf32>
  return
}
func.func private @kernel0(%a: memref<8x8xf32, strided<[1, 8]>>, %b: memref<8x8xf32>) attributes {mpt.kernel, mpt.ops = "relu"} {
  %x = bufferization.to_tensor %a restrict : memref<8x8xf32, strided<[1, 8]>> to tensor<8x8xf32>
  %r = mpt.fusion(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32> {
  ^bb0(%e: tensor<8x8xf32>):
    %0 = mpt.relu %e : tensor<8x8xf32>
    mpt.yield %0 : tensor<8x8xf32>
  }
  bufferization.materialize_in_destination %r in restrict writable %b : (tensor<8x8xf32>, memref<8x8xf32>) -> ()
  return
}
func.func private @kernel1(%a: memref<8x8xf32>, %b: memref<8x8xf32>) attributes {mpt.kernel, mpt.ops = "relu"} {
  %x = bufferization.to_tensor %a restrict : memref<8x8xf32> to tensor<8x8xf32>
  %r = mpt.fusion(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32> {
  ^bb0(%e: tensor<8x8xf32>):
    %0 = mpt.relu %e : tensor<8x8xf32>
    mpt.yield %0 : tensor<8x8xf32>
  }
  bufferization.materialize_in_destination %r in restrict writable %b : (tensor<8x8xf32>, memref<8x8xf32>) -> ()
  return
}

// -----

// Part of a state, whose rows lie apart, is copied by a kernel.
// CHECK-LABEL: func.func @part
// CHECK: %[[OWN:.*]] = rt.alloc
// CHECK: rt.launch @kernel0(%{{.*}}, %[[OWN]])
// CHECK: rt.launch @kernel1(%[[OWN]], %{{.*}}) {extent = {{[1-9]}}
train.state parameter @w : tensor<8x8xf32>
func.func @part() {
  %w = rt.state @w : memref<8x8xf32>
  %l = rt.view %w[0] : memref<8x8xf32> to memref<8x4xf32, strided<[8, 1]>>
  %r = rt.view %w[4] : memref<8x8xf32> to memref<8x4xf32, strided<[8, 1]>>
  rt.launch @kernel0(%r, %l) {extent = 0 : i64, grain = 0 : i64, num_inputs = 1 : i64} : memref<8x4xf32, strided<[8, 1]>>, memref<8x4xf32, strided<[8, 1]>>
  return
}
func.func private @kernel0(%a: memref<8x4xf32, strided<[8, 1]>>, %b: memref<8x4xf32, strided<[8, 1]>>) attributes {mpt.kernel, mpt.ops = "relu"} {
  %x = bufferization.to_tensor %a restrict : memref<8x4xf32, strided<[8, 1]>> to tensor<8x4xf32>
  %r = mpt.fusion(%x) : (tensor<8x4xf32>) -> tensor<8x4xf32> {
  ^bb0(%e: tensor<8x4xf32>):
    %0 = mpt.relu %e : tensor<8x4xf32>
    mpt.yield %0 : tensor<8x4xf32>
  }
  bufferization.materialize_in_destination %r in restrict writable %b : (tensor<8x4xf32>, memref<8x4xf32, strided<[8, 1]>>) -> ()
  return
}

// -----

// A buffer that is no state is written over by kernels alone that may: others are an error of the pass that made the launch.
func.func @scratch() {
  %w = rt.alloc : memref<8x8xf32>
  // expected-error@+1 {{expected a kernel that may write over its operand 0, got one that may not}}
  rt.launch @kernel0(%w, %w) {extent = 0 : i64, grain = 0 : i64, num_inputs = 1 : i64} : memref<8x8xf32>, memref<8x8xf32>
  return
}
func.func private @kernel0(%a: memref<8x8xf32>, %b: memref<8x8xf32>) attributes {mpt.kernel, mpt.ops = "transpose"} {
  %x = bufferization.to_tensor %a restrict : memref<8x8xf32> to tensor<8x8xf32>
  %r = mpt.fusion(%x) : (tensor<8x8xf32>) -> tensor<8x8xf32> {
  ^bb0(%e: tensor<8x8xf32>):
    %0 = mpt.transpose %e {permutation = array<i64: 1, 0>} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    mpt.yield %0 : tensor<8x8xf32>
  }
  bufferization.materialize_in_destination %r in restrict writable %b : (tensor<8x8xf32>, memref<8x8xf32>) -> ()
  return
}
