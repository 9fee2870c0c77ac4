// RUN: split-file %s %t
// RUN: mpt-opt %t/sum.mlir --import-recognize-gradients | FileCheck %s --check-prefix=SUM
// RUN: mpt-opt %t/twice.mlir --import-recognize-gradients --debug-only=import-recognize-gradients 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: mpt-opt %t/own.mlir --import-recognize-gradients | FileCheck %s --check-prefix=OWN
// RUN: mpt-opt %t/masked.mlir --import-recognize-gradients | FileCheck %s --check-prefix=MASKED
// RUN: mpt-opt %t/tanh.mlir --import-recognize-gradients | FileCheck %s --check-prefix=TANH
// RUN: mpt-opt %t/shaped.mlir --import-recognize-gradients | FileCheck %s --check-prefix=SHAPED
// RUN: mpt-opt %t/layer.mlir --import-recognize-gradients | FileCheck %s --check-prefix=LAYER

// The operand's other gradient is in the middle of the sum.
// SUM: %[[DX:.*]] = mpt.softmax_backward %arg1
// SUM: mpt.add %arg2, %[[DX]]
//--- sum.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %other: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.softmax %w {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %0 = mpt.mul %dy, %y : tensor<2x4xf32>
    %1 = mpt.reduce sum %0 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %2 = mpt.broadcast %1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %3 = mpt.mul %2, %y : tensor<2x4xf32>
    %4 = mpt.sub %other, %3 : tensor<2x4xf32>
    %dw = mpt.add %4, %0 : tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// Twice a term is another function.
// TWICE: no gradient of mpt.softmax among the file's arithmetic
// TWICE-NOT: mpt.softmax_backward
//--- twice.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %other: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.softmax %w {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %0 = mpt.mul %dy, %y : tensor<2x4xf32>
    %1 = mpt.reduce sum %0 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %2 = mpt.broadcast %1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %3 = mpt.mul %2, %y : tensor<2x4xf32>
    %4 = mpt.add %3, %3 : tensor<2x4xf32>
    %dw = mpt.sub %0, %4 : tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// Unused gradients are not looked at.
// OWN-NOT: mpt.softmax_backward
//--- own.mlir
module attributes {onnx.training = {backward = "derived", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %other: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %y = mpt.softmax %w {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %0 = mpt.mul %dy, %y : tensor<2x4xf32>
    %1 = mpt.reduce sum %0 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %2 = mpt.broadcast %1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %3 = mpt.mul %2, %y : tensor<2x4xf32>
    %dw = mpt.sub %0, %3 : tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// Attention sets rows to zero that are masked whole; the formula has that in place of the softmax.
// MASKED: %[[S:.*]] = mpt.select
// MASKED: mpt.softmax_backward %arg1, %[[S]]
//--- masked.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %other: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %zero = mpt.constant dense<0.0> : tensor<2x4xf32>
    %mask = mpt.compare lt %x, %zero : tensor<2x4xf32>
    %p = mpt.softmax %w {axis = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %y = mpt.select %mask, %zero, %p : tensor<2x4xi1>, tensor<2x4xf32>
    %0 = mpt.mul %dy, %y : tensor<2x4xf32>
    %1 = mpt.reduce sum %0 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %2 = mpt.broadcast %1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %3 = mpt.mul %2, %y : tensor<2x4xf32>
    %dw = mpt.sub %0, %3 : tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// TANH: %[[Y:.*]] = mpt.tanh
// TANH: mpt.tanh_backward %arg1, %[[Y]]
//--- tanh.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %other: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %one = mpt.constant dense<1.0> : tensor<2x4xf32>
    %y = mpt.tanh %w : tensor<2x4xf32>
    %0 = mpt.mul %y, %y : tensor<2x4xf32>
    %1 = mpt.sub %one, %0 : tensor<2x4xf32>
    %dw = mpt.mul %1, %dy : tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// The file computes the gradient in another shape.
// SHAPED: mpt.tanh_backward
//--- shaped.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @w : tensor<2x4xf32> = dense<0.5> : tensor<2x4xf32>
  func.func @forward(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %other: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<2x4xf32> {mpt.name = "w_grad"}) {
    %w = train.read @w : tensor<2x4xf32>
    %one = mpt.constant dense<1.0> : tensor<8xf32>
    %y = mpt.tanh %w : tensor<2x4xf32>
    %g = mpt.reshape %dy : (tensor<2x4xf32>) -> tensor<8xf32>
    %h = mpt.exp %g : tensor<8xf32>
    %r = mpt.reshape %y : (tensor<2x4xf32>) -> tensor<8xf32>
    %0 = mpt.mul %r, %r : tensor<8xf32>
    %1 = mpt.sub %one, %0 : tensor<8xf32>
    %2 = mpt.mul %1, %h : tensor<8xf32>
    %dw = mpt.reshape %2 : (tensor<8xf32>) -> tensor<2x4xf32>
    return %y, %dw : tensor<2x4xf32>, tensor<2x4xf32>
  }
}

// Gradients of scale and bias are found with the operand's, also where two norms share the latter.
// LAYER: %[[DX:.*]], %[[DS:.*]], %{{.*}} = mpt.layer_norm_backward %arg1, %arg2
// LAYER: %[[DX2:.*]], %[[DS2:.*]], %[[DB:.*]] = mpt.layer_norm_backward %arg1, %arg0
// LAYER: return %{{.*}}, %[[DS]], %[[DS2]], %[[DB]], %[[DX]], %[[DX2]]
//--- layer.mlir
module attributes {onnx.training = {backward = "file", gradients = {s_grad = @s, s2_grad = @s2, b_grad = @b, x_grad = @x, x2_grad = @x2}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  train.state parameter @s2 : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  train.state parameter @b : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  func.func @forward(%x2: tensor<2x4xf32>, %dy: tensor<2x4xf32>, %x: tensor<2x4xf32>) -> (tensor<2x4xf32> {mpt.name = "y"}, tensor<4xf32> {mpt.name = "s_grad"}, tensor<4xf32> {mpt.name = "s2_grad"}, tensor<4xf32> {mpt.name = "b_grad"}, tensor<2x4xf32> {mpt.name = "x_grad"}, tensor<2x4xf32> {mpt.name = "x2_grad"}) {
    %s = train.read @s : tensor<4xf32>
    %s2 = train.read @s2 : tensor<4xf32>
    %b = train.read @b : tensor<4xf32>
    %n1, %m1, %r1 = mpt.layer_norm %x, %s, %b {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
    %n2, %m2, %r2 = mpt.layer_norm %x2, %s2, %b {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<2xf32>, tensor<2xf32>)
    %y = mpt.add %n1, %n2 : tensor<2x4xf32>
    %db = mpt.reduce sum %dy {axes = array<i64: 0>} : (tensor<2x4xf32>) -> tensor<4xf32>
    %mb1 = mpt.broadcast %m1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %xc1 = mpt.sub %x, %mb1 : tensor<2x4xf32>
    %rb1 = mpt.broadcast %r1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %xn1 = mpt.mul %xc1, %rb1 : tensor<2x4xf32>
    %sb1 = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
    %g1 = mpt.mul %dy, %sb1 : tensor<2x4xf32>
    %a1 = mpt.reduce mean %g1 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %gx1 = mpt.mul %g1, %xn1 : tensor<2x4xf32>
    %c1 = mpt.reduce mean %gx1 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %ab1 = mpt.broadcast %a1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %cb1 = mpt.broadcast %c1 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %cx1 = mpt.mul %cb1, %xn1 : tensor<2x4xf32>
    %u1 = mpt.sub %g1, %ab1 : tensor<2x4xf32>
    %v1 = mpt.sub %u1, %cx1 : tensor<2x4xf32>
    %dx1 = mpt.mul %v1, %rb1 : tensor<2x4xf32>
    %p1 = mpt.mul %dy, %xn1 : tensor<2x4xf32>
    %ds1 = mpt.reduce sum %p1 {axes = array<i64: 0>} : (tensor<2x4xf32>) -> tensor<4xf32>
    %mb2 = mpt.broadcast %m2 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %xc2 = mpt.sub %x2, %mb2 : tensor<2x4xf32>
    %rb2 = mpt.broadcast %r2 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %xn2 = mpt.mul %xc2, %rb2 : tensor<2x4xf32>
    %sb2 = mpt.broadcast %s2 {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4xf32>
    %g2 = mpt.mul %dy, %sb2 : tensor<2x4xf32>
    %a2 = mpt.reduce mean %g2 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %gx2 = mpt.mul %g2, %xn2 : tensor<2x4xf32>
    %c2 = mpt.reduce mean %gx2 {axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %ab2 = mpt.broadcast %a2 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %cb2 = mpt.broadcast %c2 {dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %cx2 = mpt.mul %cb2, %xn2 : tensor<2x4xf32>
    %u2 = mpt.sub %g2, %ab2 : tensor<2x4xf32>
    %v2 = mpt.sub %u2, %cx2 : tensor<2x4xf32>
    %dx2 = mpt.mul %v2, %rb2 : tensor<2x4xf32>
    %p2 = mpt.mul %dy, %xn2 : tensor<2x4xf32>
    %ds2 = mpt.reduce sum %p2 {axes = array<i64: 0>} : (tensor<2x4xf32>) -> tensor<4xf32>
    return %y, %ds1, %ds2, %db, %dx1, %dx2 : tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2x4xf32>, tensor<2x4xf32>
  }
}
