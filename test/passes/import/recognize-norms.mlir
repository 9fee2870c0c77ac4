// RUN: split-file %s %t
// RUN: mpt-opt %t/batch.mlir --import-recognize-norms | FileCheck %s --check-prefix=BATCH
// RUN: mpt-opt %t/layer.mlir --import-recognize-norms | FileCheck %s --check-prefix=LAYER
// RUN: mpt-opt %t/root.mlir --import-recognize-norms | FileCheck %s --check-prefix=ROOT
// RUN: mpt-opt %t/log.mlir --import-recognize-norms | FileCheck %s --check-prefix=LOG
// RUN: mpt-opt %t/sample.mlir --import-recognize-norms --debug-only=import-recognize-norms 2>&1 | FileCheck %s --check-prefix=SAMPLE
// RUN: mpt-opt %t/clamped.mlir --import-recognize-norms | FileCheck %s --check-prefix=CLAMPED
// RUN: mpt-opt %t/plain.mlir --import-recognize-norms | FileCheck %s --check-prefix=PLAIN

// Scale and bias may be read after the value; mean and variance that the file computes besides are the op's.
// BATCH: %[[S:.*]] = train.read @s
// BATCH: %[[Y:.*]], %[[M:.*]], %[[V:.*]] = mpt.batch_norm %arg0, %[[S]], %{{.*}} {epsilon = {{.*}} : f64}
// BATCH: return %[[Y]], %[[M]], %[[V]]
//--- batch.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {m = @m, v = @v}}} {
  train.state parameter @s : tensor<3xf32> = dense<0.5> : tensor<3xf32>
  train.state parameter @b : tensor<3xf32> = dense<0.5> : tensor<3xf32>
  func.func @forward(%x: tensor<4x3x2x2xf32>) -> (tensor<4x3x2x2xf32> {mpt.name = "y"}, tensor<3xf32> {mpt.name = "m"}, tensor<3xf32> {mpt.name = "v"}) {
    %eps = mpt.constant dense<1.0e-5> : tensor<3xf32>
    %n = mpt.constant dense<16.0> : tensor<3xf32>
    %m = mpt.reduce mean %x {axes = array<i64: 0, 2, 3>} : (tensor<4x3x2x2xf32>) -> tensor<3xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3x2x2xf32>
    %xc = mpt.sub %x, %mb : tensor<4x3x2x2xf32>
    %sq = mpt.mul %xc, %xc : tensor<4x3x2x2xf32>
    %sum = mpt.reduce sum %sq {axes = array<i64: 0, 2, 3>} : (tensor<4x3x2x2xf32>) -> tensor<3xf32>
    %v = mpt.div %sum, %n : tensor<3xf32>
    %ve = mpt.add %v, %eps : tensor<3xf32>
    %r = mpt.rsqrt %ve : tensor<3xf32>
    %s = train.read @s : tensor<3xf32>
    %rs = mpt.mul %r, %s : tensor<3xf32>
    %rb = mpt.broadcast %rs {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3x2x2xf32>
    %xs = mpt.mul %xc, %rb : tensor<4x3x2x2xf32>
    %b = train.read @b : tensor<3xf32>
    %bb = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3x2x2xf32>
    %y = mpt.add %bb, %xs : tensor<4x3x2x2xf32>
    return %y, %m, %v : tensor<4x3x2x2xf32>, tensor<3xf32>, tensor<3xf32>
  }
}

// A sample's variance is another function.
// SAMPLE: no norm of this value: expected one over the axes of its reduction
// SAMPLE-NOT: mpt.batch_norm
//--- sample.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<3xf32> = dense<0.5> : tensor<3xf32>
  train.state parameter @b : tensor<3xf32> = dense<0.5> : tensor<3xf32>
  func.func @forward(%x: tensor<4x3x2x2xf32>) -> (tensor<4x3x2x2xf32> {mpt.name = "y"}) {
    %eps = mpt.constant dense<1.0e-5> : tensor<3xf32>
    %n = mpt.constant dense<15.0> : tensor<3xf32>
    %m = mpt.reduce mean %x {axes = array<i64: 0, 2, 3>} : (tensor<4x3x2x2xf32>) -> tensor<3xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3x2x2xf32>
    %xc = mpt.sub %x, %mb : tensor<4x3x2x2xf32>
    %sq = mpt.mul %xc, %xc : tensor<4x3x2x2xf32>
    %sum = mpt.reduce sum %sq {axes = array<i64: 0, 2, 3>} : (tensor<4x3x2x2xf32>) -> tensor<3xf32>
    %v = mpt.div %sum, %n : tensor<3xf32>
    %ve = mpt.add %v, %eps : tensor<3xf32>
    %r = mpt.rsqrt %ve : tensor<3xf32>
    %s = train.read @s : tensor<3xf32>
    %rs = mpt.mul %r, %s : tensor<3xf32>
    %rb = mpt.broadcast %rs {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3x2x2xf32>
    %xs = mpt.mul %xc, %rb : tensor<4x3x2x2xf32>
    %b = train.read @b : tensor<3xf32>
    %bb = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3x2x2xf32>
    %y = mpt.add %bb, %xs : tensor<4x3x2x2xf32>
    return %y : tensor<4x3x2x2xf32>
  }
}

// LAYER: mpt.layer_norm %arg0, %{{.*}}, %{{.*}} {axis = 1 : i64, epsilon =
// LAYER-NOT: mpt.{{reduce|sqrt}}
//--- layer.mlir
module attributes {onnx.training = {backward = "derived", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<6xf32> = dense<0.5> : tensor<6xf32>
  train.state parameter @b : tensor<6xf32> = dense<0.5> : tensor<6xf32>
  func.func @forward(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> {mpt.name = "y"}) {
    %eps = mpt.constant dense<1.0e-12> : tensor<4xf32>
    %s = train.read @s : tensor<6xf32>
    %b = train.read @b : tensor<6xf32>
    %m = mpt.reduce mean %x {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x6xf32>
    %xc = mpt.sub %x, %mb : tensor<4x6xf32>
    %sq = mpt.mul %xc, %xc : tensor<4x6xf32>
    %v = mpt.reduce mean %sq {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %ve = mpt.add %v, %eps : tensor<4xf32>
    %r = mpt.sqrt %ve : tensor<4xf32>
    %rb = mpt.broadcast %r {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x6xf32>
    %xn = mpt.div %xc, %rb : tensor<4x6xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<6xf32>) -> tensor<4x6xf32>
    %bb = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<6xf32>) -> tensor<4x6xf32>
    %xs = mpt.mul %xn, %sb : tensor<4x6xf32>
    %y = mpt.add %xs, %bb : tensor<4x6xf32>
    return %y : tensor<4x6xf32>
  }
}

// A power in place of a root.
// ROOT: mpt.rms_norm %arg0, %{{.*}} {axis = 1 : i64
// ROOT-NOT: mpt.pow
//--- root.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<6xf32> = dense<0.5> : tensor<6xf32>
  func.func @forward(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> {mpt.name = "y"}) {
    %eps = mpt.constant dense<1.0e-6> : tensor<4xf32>
    %minus = mpt.constant dense<-0.5> : tensor<4xf32>
    %two = mpt.constant dense<2.0> : tensor<4x6xf32>
    %s = train.read @s : tensor<6xf32>
    %sq = mpt.pow %x, %two : tensor<4x6xf32>
    %v = mpt.reduce mean %sq {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %ve = mpt.add %v, %eps : tensor<4xf32>
    %r = mpt.pow %ve, %minus : tensor<4xf32>
    %rb = mpt.broadcast %r {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x6xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<6xf32>) -> tensor<4x6xf32>
    %rs = mpt.mul %rb, %sb : tensor<4x6xf32>
    %y = mpt.mul %rs, %x : tensor<4x6xf32>
    return %y : tensor<4x6xf32>
  }
}

// Without the largest value taken off.
// LOG: mpt.log_softmax %arg0 {axis = 1 : i64}
//--- log.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  func.func @forward(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> {mpt.name = "y"}) {
    %e = mpt.exp %x : tensor<4x6xf32>
    %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %l = mpt.log %s : tensor<4xf32>
    %b = mpt.broadcast %l {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x6xf32>
    %y = mpt.sub %x, %b : tensor<4x6xf32>
    return %y : tensor<4x6xf32>
  }
}

// Random points never reach the bounds of a clamp, so that they say nothing of it.
// CLAMPED: mpt.clamp
// CLAMPED-NOT: mpt.log_softmax
//--- clamped.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  func.func @forward(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> {mpt.name = "y"}) {
    %e = mpt.exp %x : tensor<4x6xf32>
    %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %l = mpt.log %s : tensor<4xf32>
    %b = mpt.broadcast %l {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x6xf32>
    %c = mpt.clamp %b {low = -1.0e6 : f64, high = 1.0e6 : f64} : tensor<4x6xf32>
    %y = mpt.sub %x, %c : tensor<4x6xf32>
    return %y : tensor<4x6xf32>
  }
}

// Graphs without gradients stay as they are.
// PLAIN-NOT: mpt.log_softmax
// PLAIN: mpt.log
//--- plain.mlir
module {
  func.func @forward(%x: tensor<4x6xf32>) -> (tensor<4x6xf32> {mpt.name = "y"}) {
    %e = mpt.exp %x : tensor<4x6xf32>
    %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<4x6xf32>) -> tensor<4xf32>
    %l = mpt.log %s : tensor<4xf32>
    %b = mpt.broadcast %l {dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x6xf32>
    %y = mpt.sub %x, %b : tensor<4x6xf32>
    return %y : tensor<4x6xf32>
  }
}
