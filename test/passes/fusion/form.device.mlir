// RUN: mpt-opt %s --fusion-form=device --split-input-file | FileCheck %s

// Parameters of all shapes that are updated alike are one kernel, apart from what makes their gradients.
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
