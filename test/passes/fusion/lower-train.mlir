// RUN: mpt-opt %s --fusion-lower-train --split-input-file | FileCheck %s

// A conditional write keeps the old value by a select; the state is read once.
// CHECK-LABEL: func.func @step
// CHECK-SAME: (%[[NEW:.*]]: tensor<8xf32>, %[[OK:.*]]: tensor<i1>)
// CHECK: %[[OLD:.*]] = train.read @w
// CHECK-NOT: train.read
// CHECK: %[[C:.*]] = mpt.broadcast %[[OK]]
// CHECK: %[[V:.*]] = mpt.select %[[C]], %{{.*}}, %[[OLD]]
// CHECK: train.write @w, %[[V]] :
module {
  train.state parameter @w : tensor<8xf32>
  func.func @step(%new: tensor<8xf32>, %ok: tensor<i1>) {
    %old = train.read @w : tensor<8xf32>
    %sum = mpt.add %old, %new : tensor<8xf32>
    train.write @w, %sum if %ok : tensor<i1> : tensor<8xf32>
    return
  }
}

// -----

// The narrow copy is made from the value that its master keeps: the copy's old value is not read.
// CHECK-LABEL: func.func @step
// CHECK: %[[OLD:.*]] = train.read @w.master
// CHECK: %[[KEPT:.*]] = mpt.select %{{.*}}, %{{.*}}, %[[OLD]]
// CHECK-NOT: train.read
// CHECK: train.write @w.master, %[[KEPT]] :
// CHECK: %[[COPY:.*]] = mpt.cast %[[KEPT]]
// CHECK-NEXT: train.write @w, %[[COPY]] :
module {
  train.state parameter @w : tensor<8xf16>
  train.state master @w.master : tensor<8xf32> of "w"
  func.func @step(%new: tensor<8xf32>, %ok: tensor<i1>) {
    %old = train.read @w.master : tensor<8xf32>
    %sum = mpt.add %old, %new : tensor<8xf32>
    %narrow = mpt.cast %sum : tensor<8xf32> to tensor<8xf16>
    train.write @w, %narrow if %ok : tensor<i1> : tensor<8xf16>
    train.write @w.master, %sum if %ok : tensor<i1> : tensor<8xf32>
    return
  }
}

// -----

// A copy that is rounded at random would be another one: the old value stays.
// CHECK-LABEL: func.func @step
// CHECK: %[[NEW:.*]] = mpt.cast {{.*}}stochastic
// CHECK: %[[OLD:.*]] = train.read @w :
// CHECK: mpt.select %{{.*}}, %[[NEW]], %[[OLD]]
module {
  train.state parameter @w : tensor<8xf16>
  train.state master @w.master : tensor<8xf32> of "w"
  func.func @step(%new: tensor<8xf32>, %ok: tensor<i1>, %key: tensor<2xi64>) {
    %narrow = mpt.cast %new key %key : tensor<2xi64> {rounding = #mpt<rounding stochastic>} : tensor<8xf32> to tensor<8xf16>
    train.write @w.master, %new if %ok : tensor<i1> : tensor<8xf32>
    train.write @w, %narrow if %ok : tensor<i1> : tensor<8xf16>
    return
  }
}

// -----

// Unscaling, the finite check and the gradient marker become core ops.
// CHECK-LABEL: func.func @scaled
// CHECK: %[[INV:.*]] = mpt.reciprocal
// CHECK: %[[WIDE:.*]] = mpt.cast %{{.*}} : tensor<8xf16> to tensor<8xf32>
// CHECK: %[[G:.*]] = mpt.mul %[[WIDE]]
// CHECK: %[[A:.*]] = mpt.abs %[[G]]
// CHECK: %[[M:.*]] = mpt.reduce max %[[A]]
// CHECK: mpt.is_finite %[[M]]
// CHECK-NOT: train.
module {
  func.func @scaled(%g: tensor<8xf16>, %scale: tensor<f32>) -> (tensor<8xf32>, tensor<i1>) {
    %u = train.unscale %g, %scale : (tensor<8xf16>, tensor<f32>) -> tensor<8xf32>
    %f = train.all_finite %u : (tensor<8xf32>) -> tensor<i1>
    return %u, %f : tensor<8xf32>, tensor<i1>
  }
}

// -----

// A scale that a decomposition makes is marked; its other values are not.
// CHECK-LABEL: func.func @scales
// CHECK-COUNT-1: train.scale
// CHECK-NOT: train.scale
func.func @scales(%amax: tensor<4xf32>, %old: tensor<4xf32>) -> tensor<4xf32> {
  %new = train.tensor_scale %amax, %old {largest = 448.0 : f64} : tensor<4xf32>
  return %new : tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @update
// CHECK: %[[NEW:.*]] = mpt.select {{.*}}{train.scale}
// CHECK-NOT: train.scale
// CHECK: return %[[NEW]]
func.func @update(%scale: tensor<f32>, %good: tensor<i32>, %left: tensor<i32>, %finite: tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>) {
  %0:3 = train.update_scale %scale, %good, %left, %finite {growth = 2.0, backoff = 0.5, interval = 2000 : i64, hysteresis = 1 : i64, min = 1.0, max = 16777216.0} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
  return %0#0, %0#1, %0#2 : tensor<f32>, tensor<i32>, tensor<i32>
}

// -----

// Contractions state the part of the step that training ops told: behind the scaled loss, and behind a gradient. Work that only the
// backward pass reads is part of it.
// CHECK-LABEL: func.func @parts
// CHECK: mpt.matmul %arg0, %{{.*}} : (tensor<8x8xf32>
// CHECK: mpt.matmul %{{.*}} {train.part = #train<part backward>, transpose_a = true}
// CHECK: mpt.matmul %{{.*}} {train.part = #train<part backward>, transpose_b = true}
// CHECK: mpt.matmul %{{.*}} {train.part = #train<part update>}
module {
  train.state parameter @w : tensor<8x8xf32>
  func.func @parts(%x: tensor<8x8xf32>, %dy: tensor<8x8xf32>, %s: tensor<f32>) -> tensor<8x8xf32> {
    %w = train.read @w : tensor<8x8xf32>
    %y = mpt.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %t = mpt.matmul %x, %x {transpose_a = true} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %seed = train.scale_loss %dy, %s : tensor<8x8xf32>, tensor<f32>
    %dw = mpt.matmul %t, %seed {transpose_b = true} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %g = train.gradient @w, %dw : tensor<8x8xf32>
    %next = mpt.matmul %g, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    train.write @w, %next : tensor<8x8xf32>
    return %y : tensor<8x8xf32>
  }
}
