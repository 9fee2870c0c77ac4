// RUN: mpt-opt %s --fusion-compact-tables --split-input-file | FileCheck %s
// RUN: mpt-opt %s --fusion-compact-tables --fusion-form --split-input-file | FileCheck %s --check-prefix=FORM
// RUN: mpt-opt %s --fusion-compact-tables --split-input-file --debug-only=fusion-compact-tables 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// A tied table: its sum with the head's gradient is computed by each of its two readers, and stored by none.
// CHECK-LABEL: @tied
// CHECK: mpt.scatter_add {{.*}} -> tensor<6x512xf32>
// CHECK: %[[FIRST:.*]] = mpt.select
// CHECK: %[[SUM:.*]] = mpt.add %arg2, %[[FIRST]]
// CHECK: %[[UNSCALED:.*]] = mpt.mul %[[SUM]], %arg3
// CHECK: mpt.abs %[[UNSCALED]]
// CHECK: %[[SECOND:.*]] = mpt.select
// CHECK: %[[AGAIN:.*]] = mpt.add %arg2, %[[SECOND]]
// CHECK: %[[OWN:.*]] = mpt.mul %[[AGAIN]], %arg3
// CHECK: mpt.sub %arg4, %[[OWN]]
// FORM-LABEL: @tied
// FORM-NOT: -> (tensor<256x512xf32>, tensor<256x512xf32>)
// FORM: return
func.func @tied(%ids: tensor<2x3xi64>, %dy: tensor<2x3x512xf32>, %head: tensor<256x512xf32>, %scale: tensor<256x512xf32>, %w: tensor<256x512xf32>) -> (tensor<f32>, tensor<256x512xf32>) {
  %g = mpt.scatter_add %ids, %dy {axis = 0 : i64} : (tensor<2x3xi64>, tensor<2x3x512xf32>) -> tensor<256x512xf32>
  %sum = mpt.add %head, %g : tensor<256x512xf32>
  %unscaled = mpt.mul %sum, %scale : tensor<256x512xf32>
  %size = mpt.abs %unscaled : tensor<256x512xf32>
  %most = mpt.reduce max %size {axes = array<i64: 0, 1>} : (tensor<256x512xf32>) -> tensor<f32>
  %next = mpt.sub %w, %unscaled : tensor<256x512xf32>
  return %most, %next : tensor<f32>, tensor<256x512xf32>
}

// -----

// An update in blocks of 128: rows of the table are four rows there, and arithmetic on the way is done in their shape.
// CHECK-LABEL: @blocks
// CHECK: mpt.scatter_add {{.*}} -> tensor<6x512xf32>
// CHECK: mpt.reshape {{.*}} : (tensor<6x512xf32>) -> tensor<24x128xf32>
// CHECK: mpt.gather %{{.*}} : (tensor<24x128xf32>, tensor<1024xi32>) -> tensor<1024x128xf32>
// CHECK: mpt.reshape %arg2 : (tensor<256x512xf16>) -> tensor<1024x128xf16>
// CHECK: mpt.add {{.*}} : tensor<1024x128xf32>
// FORM-LABEL: @blocks
// FORM-NOT: mpt.fusion{{.*}} -> tensor<256x512xf32> {
// FORM-NOT: mpt.fusion{{.*}} -> (tensor<256x512xf32>
// FORM: return
func.func @blocks(%ids: tensor<2x3xi64>, %dy: tensor<2x3x512xf32>, %head: tensor<256x512xf16>, %w: tensor<256x512xf32>) -> (tensor<f32>, tensor<1024x128xf32>) {
  %g = mpt.scatter_add %ids, %dy {axis = 0 : i64} : (tensor<2x3xi64>, tensor<2x3x512xf32>) -> tensor<256x512xf32>
  %wide = mpt.cast %head : tensor<256x512xf16> to tensor<256x512xf32>
  %sum = mpt.add %wide, %g : tensor<256x512xf32>
  %size = mpt.abs %sum : tensor<256x512xf32>
  %most = mpt.reduce max %size {axes = array<i64: 0, 1>} : (tensor<256x512xf32>) -> tensor<f32>
  %rows = mpt.reshape %sum : (tensor<256x512xf32>) -> tensor<1024x128xf32>
  %old = mpt.reshape %w : (tensor<256x512xf32>) -> tensor<1024x128xf32>
  %next = mpt.sub %old, %rows : tensor<1024x128xf32>
  return %most, %next : tensor<f32>, tensor<1024x128xf32>
}

// -----

// CHECK-LABEL: @mostly_read
// CHECK-NOT: mpt.scatter_elements
// WHY: not compact: expected 258 rows and more, got 256
func.func @mostly_read(%ids: tensor<129xi64>, %dy: tensor<129x512xf32>) -> tensor<256x512xf32> {
  %g = mpt.scatter_add %ids, %dy {axis = 0 : i64} : (tensor<129xi64>, tensor<129x512xf32>) -> tensor<256x512xf32>
  return %g : tensor<256x512xf32>
}

// -----

// CHECK-LABEL: @small
// CHECK-NOT: mpt.scatter_elements
func.func @small(%ids: tensor<2xi64>, %dy: tensor<2x8xf32>) -> tensor<256x8xf32> {
  %g = mpt.scatter_add %ids, %dy {axis = 0 : i64} : (tensor<2xi64>, tensor<2x8xf32>) -> tensor<256x8xf32>
  return %g : tensor<256x8xf32>
}
