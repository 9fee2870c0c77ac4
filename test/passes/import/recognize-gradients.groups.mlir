// RUN: mpt-opt %s --import-recognize-gradients | FileCheck %s

// torch's formula: sums over each channel first, then one factor of dy, one of x, and an offset, which hold the scale.
// CHECK: %{{.*}}, %[[M:.*]], %[[R:.*]] = mpt.group_norm %arg0, %[[S:.*]], %{{.*}} {
// CHECK: %[[DX:.*]], %[[DS:.*]], %[[DB:.*]] = mpt.group_norm_backward %arg1, %arg0, %[[S]], %[[M]], %[[R]] {groups = 2 : i64}
// CHECK-NOT: mpt.reduce
// CHECK: return %{{.*}}, %[[DX]], %[[DS]], %[[DB]]
module attributes {onnx.training = {backward = "file", gradients = {x_grad = @x, s_grad = @s, b_grad = @b}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  train.state parameter @b : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  func.func @forward(%x: tensor<3x4x5xf32>, %dy: tensor<3x4x5xf32>) -> (tensor<3x4x5xf32> {mpt.name = "y"}, tensor<3x4x5xf32> {mpt.name = "x_grad"}, tensor<4xf32> {mpt.name = "s_grad"}, tensor<4xf32> {mpt.name = "b_grad"}) {
    %tenth = mpt.constant dense<0.1> : tensor<3x2xf32>
    %s = train.read @s : tensor<4xf32>
    %b = train.read @b : tensor<4xf32>
    %y, %m, %r = mpt.group_norm %x, %s, %b {epsilon = 1.0e-5 : f64, groups = 2 : i64} : (tensor<3x4x5xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<3x4x5xf32>, tensor<3x2xf32>, tensor<3x2xf32>)
    %dyx = mpt.mul %dy, %x : tensor<3x4x5xf32>
    %ds = mpt.reduce sum %dyx {axes = array<i64: 2>} : (tensor<3x4x5xf32>) -> tensor<3x4xf32>
    %db = mpt.reduce sum %dy {axes = array<i64: 2>} : (tensor<3x4x5xf32>) -> tensor<3x4xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4xf32>
    %dss = mpt.mul %ds, %sb : tensor<3x4xf32>
    %dbs = mpt.mul %db, %sb : tensor<3x4xf32>
    %dsg = mpt.reshape %dss : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
    %dbg = mpt.reshape %dbs : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
    %dsv = mpt.reduce sum %dsg {axes = array<i64: 2>} : (tensor<3x2x2xf32>) -> tensor<3x2xf32>
    %dbv = mpt.reduce sum %dbg {axes = array<i64: 2>} : (tensor<3x2x2xf32>) -> tensor<3x2xf32>
    // c1 = r s, c2 = (dbv m - dsv) r^3 / 10, c3 = -c2 m - dbv r / 10
    %rb = mpt.broadcast %r {dims = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<3x2x2xf32>
    %sg = mpt.reshape %s : (tensor<4xf32>) -> tensor<2x2xf32>
    %sgb = mpt.broadcast %sg {dims = array<i64: 1, 2>} : (tensor<2x2xf32>) -> tensor<3x2x2xf32>
    %c1 = mpt.mul %rb, %sgb : tensor<3x2x2xf32>
    %dbm = mpt.mul %dbv, %m : tensor<3x2xf32>
    %diff = mpt.sub %dbm, %dsv : tensor<3x2xf32>
    %d1 = mpt.mul %diff, %r : tensor<3x2xf32>
    %d2 = mpt.mul %d1, %r : tensor<3x2xf32>
    %d3 = mpt.mul %d2, %r : tensor<3x2xf32>
    %c2 = mpt.mul %d3, %tenth : tensor<3x2xf32>
    %e1 = mpt.neg %c2 : tensor<3x2xf32>
    %e2 = mpt.mul %e1, %m : tensor<3x2xf32>
    %e3 = mpt.mul %dbv, %r : tensor<3x2xf32>
    %e4 = mpt.mul %e3, %tenth : tensor<3x2xf32>
    %c3 = mpt.sub %e2, %e4 : tensor<3x2xf32>
    %dyg = mpt.reshape %dy : (tensor<3x4x5xf32>) -> tensor<3x2x2x5xf32>
    %xg = mpt.reshape %x : (tensor<3x4x5xf32>) -> tensor<3x2x2x5xf32>
    %c1b = mpt.broadcast %c1 {dims = array<i64: 0, 1, 2>} : (tensor<3x2x2xf32>) -> tensor<3x2x2x5xf32>
    %c2b = mpt.broadcast %c2 {dims = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<3x2x2x5xf32>
    %c3b = mpt.broadcast %c3 {dims = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<3x2x2x5xf32>
    %t1 = mpt.mul %dyg, %c1b : tensor<3x2x2x5xf32>
    %t2 = mpt.mul %xg, %c2b : tensor<3x2x2x5xf32>
    %t3 = mpt.add %t1, %t2 : tensor<3x2x2x5xf32>
    %t4 = mpt.add %t3, %c3b : tensor<3x2x2x5xf32>
    %dx = mpt.reshape %t4 : (tensor<3x2x2x5xf32>) -> tensor<3x4x5xf32>
    // ds and db of the parameters, from the same sums
    %dsc = mpt.reshape %ds : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
    %dbc = mpt.reshape %db : (tensor<3x4xf32>) -> tensor<3x2x2xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<3x2x2xf32>
    %dbcm = mpt.mul %dbc, %mb : tensor<3x2x2xf32>
    %u = mpt.sub %dsc, %dbcm : tensor<3x2x2xf32>
    %ur = mpt.mul %u, %rb : tensor<3x2x2xf32>
    %us = mpt.reduce sum %ur {axes = array<i64: 0>} : (tensor<3x2x2xf32>) -> tensor<2x2xf32>
    %dscale = mpt.reshape %us : (tensor<2x2xf32>) -> tensor<4xf32>
    %dbias = mpt.reduce sum %db {axes = array<i64: 0>} : (tensor<3x4xf32>) -> tensor<4xf32>
    return %y, %dx, %dscale, %dbias : tensor<3x4x5xf32>, tensor<3x4x5xf32>, tensor<4xf32>, tensor<4xf32>
  }
}
