// RUN: mpt-opt %s --fusion-share-reads | FileCheck %s
// RUN: mpt-opt %s --fusion-share-reads "--fusion-form=shared-sums column-outputs kept-rows bundles memory-bound" | FileCheck %s --check-prefix=FORM
// RUN: mpt-opt %s --fusion-share-reads --debug-only=fusion-share-reads 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: fusion-share-reads: {{.*}}: not rematerialized

// The mask of a ReLU behind a normalization follows from the norm's input, which its gradient reads as well; the masked
// gradient is rematerialized behind the sums: neither is read, or written.
// CHECK-LABEL: func.func @norm
// CHECK: %[[DY:.*]] = mpt.matmul
// CHECK: %[[W:.*]] = mpt.cast %arg0
// CHECK: %[[Y:.*]] = mpt.relu
// CHECK: mpt.relu_backward %[[DY]], %[[Y]]
// CHECK: mpt.reduce
// CHECK: %[[W2:.*]] = mpt.cast %arg0
// CHECK: %[[Y2:.*]] = mpt.relu
// CHECK: mpt.relu_backward %[[DY]], %[[Y2]]
// FORM-LABEL: func.func @norm
// FORM: %[[X:.*]] = mpt.fusion(%arg0, {{.*}} -> tensor<8192x256xf16>
// FORM: %[[P:.*]] = mpt.matmul
// FORM: mpt.fusion({{.*}} -> (tensor<256xf32>, tensor<256xf32>)
// FORM: mpt.fusion({{.*}}%[[P]]{{.*}} -> tensor<8192x256xf16>
func.func @norm(%x: tensor<8192x256xf16>, %mean: tensor<256xf32>, %w: tensor<256x256xf16>) -> (tensor<8192x256xf16>, tensor<8192x256xf16>, tensor<256xf32>, tensor<256xf32>) {
  %wide = mpt.cast %x : tensor<8192x256xf16> to tensor<8192x256xf32>
  %b = mpt.broadcast %mean {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<8192x256xf32>
  %xhat = mpt.sub %wide, %b : tensor<8192x256xf32>
  %n = mpt.cast %xhat : tensor<8192x256xf32> to tensor<8192x256xf16>
  %y = mpt.relu %n : tensor<8192x256xf16>
  %dy = mpt.matmul %y, %w : (tensor<8192x256xf16>, tensor<256x256xf16>) -> tensor<8192x256xf16>
  %g = mpt.relu_backward %dy, %y : tensor<8192x256xf16>
  %gw = mpt.cast %g : tensor<8192x256xf16> to tensor<8192x256xf32>
  %s = mpt.reduce sum %gw {axes = array<i64: 0>} : (tensor<8192x256xf32>) -> tensor<256xf32>
  %gx = mpt.mul %gw, %xhat : tensor<8192x256xf32>
  %t = mpt.reduce sum %gx {axes = array<i64: 0>} : (tensor<8192x256xf32>) -> tensor<256xf32>
  %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<8192x256xf32>
  %tb = mpt.broadcast %t {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<8192x256xf32>
  %u = mpt.mul %xhat, %tb : tensor<8192x256xf32>
  %v = mpt.sub %gw, %sb : tensor<8192x256xf32>
  %d = mpt.sub %v, %u : tensor<8192x256xf32>
  %dx = mpt.cast %d : tensor<8192x256xf32> to tensor<8192x256xf16>
  return %y, %dx, %s, %t : tensor<8192x256xf16>, tensor<8192x256xf16>, tensor<256xf32>, tensor<256xf32>
}

// A value that is wanted elsewhere later is written in any case, and read: making it again would read three values more.
// CHECK-LABEL: func.func @residual
// CHECK-COUNT-1: mpt.relu_backward
// CHECK-NOT: mpt.relu_backward
// CHECK: return
func.func @residual(%x: tensor<8192x256xf16>, %y: tensor<8192x256xf16>, %a: tensor<8192x256xf16>, %b: tensor<8192x256xf16>, %w: tensor<256x256xf16>) -> (tensor<8192x256xf16>, tensor<8192x256xf16>) {
  %dy = mpt.add %a, %b : tensor<8192x256xf16>
  %g = mpt.relu_backward %dy, %y : tensor<8192x256xf16>
  %gw = mpt.cast %g : tensor<8192x256xf16> to tensor<8192x256xf32>
  %s = mpt.reduce sum %gw {axes = array<i64: 0>} : (tensor<8192x256xf32>) -> tensor<256xf32>
  %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<8192x256xf32>
  %wide = mpt.cast %x : tensor<8192x256xf16> to tensor<8192x256xf32>
  %u = mpt.mul %wide, %sb : tensor<8192x256xf32>
  %v = mpt.sub %gw, %u : tensor<8192x256xf32>
  %dx = mpt.cast %v : tensor<8192x256xf32> to tensor<8192x256xf16>
  %back = mpt.matmul %dx, %w : (tensor<8192x256xf16>, tensor<256x256xf16>) -> tensor<8192x256xf16>
  %next = mpt.add %g, %back : tensor<8192x256xf16>
  return %next, %dx : tensor<8192x256xf16>, tensor<8192x256xf16>
}

// Updates are left as they are: fusion-form bundles them.
// CHECK-LABEL: func.func @update
// CHECK-COUNT-1: mpt.mul
// CHECK-NOT: mpt.mul
// CHECK: return
train.state parameter @p : tensor<512x256xf32>
func.func @update(%g: tensor<512x256xf32>) {
  %p = train.read @p : tensor<512x256xf32>
  %m = mpt.mul %g, %p : tensor<512x256xf32>
  %flat = mpt.reduce sum %m {axes = array<i64: 0, 1>} : (tensor<512x256xf32>) -> tensor<f32>
  %b = mpt.broadcast %flat {dims = array<i64>} : (tensor<f32>) -> tensor<512x256xf32>
  %n = mpt.sub %m, %b : tensor<512x256xf32>
  train.write @p, %n : tensor<512x256xf32>
  return
}
