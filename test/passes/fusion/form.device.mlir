// RUN: mpt-opt %s "--fusion-form=shared-sums column-outputs kept-rows bundles memory-bound" --split-input-file | FileCheck %s

// Parameters of all shapes that are updated alike are one kernel, apart from the kernels of their gradients.
// CHECK-LABEL: func.func @updates
// CHECK: mpt.fusion{{.*}} -> tensor<768xf32> {
// CHECK: mpt.reduce
// CHECK: %[[N:.*]]:2 = mpt.fusion({{.*}}) : {{.*}} -> (tensor<{{[0-9x]*}}f32>, tensor<{{[0-9x]*}}f32>)
// CHECK-NOT: mpt.fusion
// CHECK: return
train.state parameter @w : tensor<64x768xf32>
train.state parameter @b : tensor<768xf32>
func.func @updates(%g: tensor<64x768xf32>, %lr: tensor<f32>) {
  %w = train.read @w : tensor<64x768xf32>
  %b = train.read @b : tensor<768xf32>
  %s = mpt.reduce sum %g {axes = array<i64: 0>} : (tensor<64x768xf32>) -> tensor<768xf32>
  %l = mpt.broadcast %lr {dims = array<i64>} : (tensor<f32>) -> tensor<64x768xf32>
  %m = mpt.mul %l, %g : tensor<64x768xf32>
  %n = mpt.sub %w, %m : tensor<64x768xf32>
  train.write @w, %n : tensor<64x768xf32>
  %k = mpt.broadcast %lr {dims = array<i64>} : (tensor<f32>) -> tensor<768xf32>
  %o = mpt.mul %k, %s : tensor<768xf32>
  %p = mpt.sub %b, %o : tensor<768xf32>
  train.write @b, %p : tensor<768xf32>
  return
}

// -----

// A sum over columns shares the pass that writes its terms.
// CHECK-LABEL: func.func @columns
// CHECK: mpt.fusion{{.*}} -> (tensor<{{.*}}>, tensor<{{.*}}>)
// CHECK-NOT: mpt.fusion
// CHECK: return
func.func @columns(%x: tensor<6400x256xf32>) -> (tensor<6400x256xf32>, tensor<256xf32>) {
  %e = mpt.exp %x : tensor<6400x256xf32>
  %s = mpt.reduce sum %e {axes = array<i64: 0>} : (tensor<6400x256xf32>) -> tensor<256xf32>
  return %e, %s : tensor<6400x256xf32>, tensor<256xf32>
}

// -----

// The finite checks of three gradients are one kernel, and their updates another.
// CHECK-LABEL: func.func @checks
// CHECK: %[[M:.*]]:3 = mpt.fusion({{.*}}) : (tensor<4x8xf32>, tensor<16xf32>, tensor<64xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
// CHECK: mpt.fusion
// CHECK-NOT: mpt.fusion
// CHECK: return
train.state parameter @u : tensor<4x8xf32>
train.state parameter @v : tensor<16xf32>
train.state parameter @w : tensor<64xf32>
func.func @checks(%a: tensor<4x8xf32>, %b: tensor<16xf32>, %c: tensor<64xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>) {
  %p = mpt.abs %a : tensor<4x8xf32>
  %q = mpt.abs %b : tensor<16xf32>
  %r = mpt.abs %c : tensor<64xf32>
  %x = mpt.reduce max %p {axes = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %y = mpt.reduce max %q {axes = array<i64: 0>} : (tensor<16xf32>) -> tensor<f32>
  %z = mpt.reduce max %r {axes = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
  %u = train.read @u : tensor<4x8xf32>
  %v = train.read @v : tensor<16xf32>
  %w = train.read @w : tensor<64xf32>
  %d = mpt.sub %u, %a : tensor<4x8xf32>
  %e = mpt.sub %v, %b : tensor<16xf32>
  %f = mpt.sub %w, %c : tensor<64xf32>
  train.write @u, %d : tensor<4x8xf32>
  train.write @v, %e : tensor<16xf32>
  train.write @w, %f : tensor<64xf32>
  return %x, %y, %z : tensor<f32>, tensor<f32>, tensor<f32>
}

// -----

// One block makes the sums of scalar arithmetic: 8192 elements at most.
// CHECK-LABEL: func.func @small
// CHECK-COUNT-2: mpt.fusion
// CHECK-NOT: mpt.fusion
// CHECK: return
func.func @small(%a: tensor<4000xf32>, %b: tensor<3000xf32>, %c: tensor<4000xf32>) -> tensor<f32> {
  %0 = mpt.reduce max %a {axes = array<i64: 0>} : (tensor<4000xf32>) -> tensor<f32>
  %1 = mpt.reduce max %b {axes = array<i64: 0>} : (tensor<3000xf32>) -> tensor<f32>
  %2 = mpt.reduce max %c {axes = array<i64: 0>} : (tensor<4000xf32>) -> tensor<f32>
  %3 = mpt.max %0, %1 : tensor<f32>
  %4 = mpt.max %3, %2 : tensor<f32>
  return %4 : tensor<f32>
}

// -----

// Two tensors that have nothing in common but a number that waits for both: each has a pass of its own.
// CHECK-LABEL: func.func @numbers
// CHECK: %[[N:.*]]:2 = mpt.fusion(%arg1) : {{.*}} -> (tensor<f32>, tensor<512x256xf16>)
// CHECK: mpt.fusion(%arg0, %[[N]]#0) : {{.*}} -> (tensor<512x256xf16>, tensor<f32>)
func.func @numbers(%x: tensor<512x256xf32>, %y: tensor<512x256xf32>) -> (tensor<512x256xf16>, tensor<512x256xf16>, tensor<f32>) {
  %a = mpt.abs %x : tensor<512x256xf32>
  %m = mpt.reduce max %a {axes = array<i64: 0, 1>} : (tensor<512x256xf32>) -> tensor<f32>
  %p = mpt.cast %x : tensor<512x256xf32> to tensor<512x256xf16>
  %b = mpt.abs %y : tensor<512x256xf32>
  %n = mpt.reduce max %b {axes = array<i64: 0, 1>} : (tensor<512x256xf32>) -> tensor<f32>
  %q = mpt.cast %y : tensor<512x256xf32> to tensor<512x256xf16>
  %most = mpt.max %m, %n : tensor<f32>
  return %p, %q, %most : tensor<512x256xf16>, tensor<512x256xf16>, tensor<f32>
}

// Terms that rows and columns both add up are made with the sums of the rows; the columns' sums share the pass that the
// readers of the rows' sums need anyway.
// CHECK-LABEL: func.func @rows_and_columns
// CHECK: %[[S:.*]]:2 = mpt.fusion(%arg0, %arg1, %arg2) : (tensor<1024x256xbf16>, tensor<1024x256xbf16>, tensor<1024x256xbf16>) -> (tensor<1024x256xbf16>, tensor<1024xf32>)
// CHECK: mpt.reduce sum %{{.*}} {axes = array<i64: 1>}
// CHECK-NOT: axes = array<i64: 0>
// CHECK: mpt.fusion(%[[S]]#0, %arg2, %[[S]]#1) : (tensor<1024x256xbf16>, tensor<1024x256xbf16>, tensor<1024xf32>) -> (tensor<256xf32>, tensor<1024x256xbf16>, tensor<256xf32>)
func.func @rows_and_columns(%a: tensor<1024x256xbf16>, %b: tensor<1024x256xbf16>, %x: tensor<1024x256xbf16>) -> (tensor<256xf32>, tensor<1024x256xbf16>, tensor<256xf32>) {
  %s = mpt.add %a, %b : tensor<1024x256xbf16>
  %g = mpt.cast %s : tensor<1024x256xbf16> to tensor<1024x256xf32>
  %w = mpt.cast %x : tensor<1024x256xbf16> to tensor<1024x256xf32>
  %p = mpt.mul %g, %w : tensor<1024x256xf32>
  %p0 = mpt.mul %w, %g : tensor<1024x256xf32>
  %gain = mpt.reduce sum %p0 {axes = array<i64: 0>} : (tensor<1024x256xf32>) -> tensor<256xf32>
  %r = mpt.reduce sum %p {axes = array<i64: 1>} : (tensor<1024x256xf32>) -> tensor<1024xf32>
  %rb = mpt.broadcast %r {dims = array<i64: 0>} : (tensor<1024xf32>) -> tensor<1024x256xf32>
  %m = mpt.mul %rb, %w : tensor<1024x256xf32>
  %d = mpt.sub %g, %m : tensor<1024x256xf32>
  %dx = mpt.cast %d : tensor<1024x256xf32> to tensor<1024x256xbf16>
  %dw = mpt.cast %dx : tensor<1024x256xbf16> to tensor<1024x256xf32>
  %bias = mpt.reduce sum %dw {axes = array<i64: 0>} : (tensor<1024x256xf32>) -> tensor<256xf32>
  return %gain, %dx, %bias : tensor<256xf32>, tensor<1024x256xbf16>, tensor<256xf32>
}

// Terms that columns alone add up are written beside their sums.
// CHECK-LABEL: func.func @masked
// CHECK: mpt.fusion(%arg0, %arg1) : (tensor<1024x256xbf16>, tensor<1024x256xbf16>) -> (tensor<1024x256xbf16>, tensor<256xf32>)
func.func @masked(%g: tensor<1024x256xbf16>, %y: tensor<1024x256xbf16>) -> (tensor<1024x256xbf16>, tensor<256xf32>) {
  %dx = mpt.relu_backward %g, %y : tensor<1024x256xbf16>
  %dw = mpt.cast %dx : tensor<1024x256xbf16> to tensor<1024x256xf32>
  %b = mpt.reduce sum %dw {axes = array<i64: 0>} : (tensor<1024x256xf32>) -> tensor<256xf32>
  return %dx, %b : tensor<1024x256xbf16>, tensor<256xf32>
}

// -----

// The largest magnitudes of an activation are found where it is made, although only the next scale, behind the backward
// pass, waits for them, and although the activation is rounded and widened again.
// CHECK-LABEL: func.func @magnitudes
// CHECK: mpt.fusion(%arg0, %arg1)
// CHECK-NOT: mpt.fusion
// CHECK: mpt.reduce max
// CHECK: mpt.matmul
func.func @magnitudes(%x: tensor<1024x256xf32>, %s: tensor<f32>, %w: tensor<256x256xf16>) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<256x256xf32>, tensor<f32>) {
  %0 = mpt.tanh %x : tensor<1024x256xf32>
  %1 = mpt.cast %0 : tensor<1024x256xf32> to tensor<1024x256xbf16>
  %2 = mpt.abs %1 : tensor<1024x256xbf16>
  %3 = mpt.reduce max %2 {axes = array<i64: 1>} : (tensor<1024x256xbf16>) -> tensor<1024xbf16>
  %4 = mpt.cast %1 : tensor<1024x256xbf16> to tensor<1024x256xf32>
  %5 = mpt.broadcast %s {dims = array<i64>} : (tensor<f32>) -> tensor<1024x256xf32>
  %6 = mpt.mul %4, %5 : tensor<1024x256xf32>
  %7 = mpt.cast %6 : tensor<1024x256xf32> to tensor<1024x256xf16>
  %8 = mpt.matmul %7, %w : (tensor<1024x256xf16>, tensor<256x256xf16>) -> tensor<1024x256xf32>
  %9 = mpt.reduce sum %8 {axes = array<i64: 0, 1>} : (tensor<1024x256xf32>) -> tensor<f32>
  %10 = mpt.matmul %7, %7 {train.part = #train<part backward>, transpose_a = true} : (tensor<1024x256xf16>, tensor<1024x256xf16>) -> tensor<256x256xf32>
  %11 = mpt.slice %10 {sizes = array<i64: 1, 1>, starts = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<256x256xf32>) -> tensor<1x1xf32>
  %12 = mpt.reshape %11 : (tensor<1x1xf32>) -> tensor<f32>
  %13 = mpt.reduce max %3 {axes = array<i64: 0>} : (tensor<1024xbf16>) -> tensor<bf16>
  %14 = mpt.cast %13 : tensor<bf16> to tensor<f32>
  %15 = mpt.mul %14, %12 : tensor<f32>
  return %9, %10, %15 : tensor<f32>, tensor<256x256xf32>, tensor<f32>
}
