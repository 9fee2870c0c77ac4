// RUN: split-file %s %t
// RUN: mpt-opt %t/bare.mlir --import-recognize-norms | FileCheck %s --check-prefix=BARE
// RUN: mpt-opt %t/sums.mlir --import-recognize-norms | FileCheck %s --check-prefix=SUMS
// RUN: mpt-opt %t/instance.mlir --import-recognize-norms | FileCheck %s --check-prefix=INSTANCE
// RUN: mpt-opt %t/elements.mlir --import-recognize-norms | FileCheck %s --check-prefix=ELEMENTS
// RUN: mpt-opt %t/alone.mlir --import-recognize-norms | FileCheck %s --check-prefix=ALONE

// The operator normalizes groups as channels, and channels are scaled behind it. The mean is computed again besides, and a
// factor of one is behind the norm.
// BARE: %[[Y:.*]], %[[M:.*]], %{{.*}} = mpt.group_norm %arg0, %[[S:.*]], %[[B:.*]] {epsilon = {{.*}}, groups = 2 : i64} : (tensor<3x4x5xf32>
// BARE-NOT: mpt.group_norm
// BARE: mpt.compare gt %[[Y]], %[[Y]]
// BARE: return %{{.*}}, %[[M]]
//--- bare.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  train.state parameter @b : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  func.func @forward(%x: tensor<3x4x5xf32>) -> (tensor<3x4x5xi1> {mpt.name = "y"}, tensor<3x2xf32> {mpt.name = "m"}) {
    %factor = mpt.constant dense<1.0> : tensor<3x4x5xf32>
    %one = mpt.constant dense<1.0> : tensor<2xf32>
    %zero = mpt.constant dense<0.0> : tensor<2xf32>
    %s = train.read @s : tensor<4xf32>
    %b = train.read @b : tensor<4xf32>
    %g = mpt.reshape %x : (tensor<3x4x5xf32>) -> tensor<3x2x10xf32>
    %n, %nm, %nr = mpt.group_norm %g, %one, %zero {epsilon = 1.0e-5 : f64, groups = 2 : i64} : (tensor<3x2x10xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<3x2x10xf32>, tensor<3x2xf32>, tensor<3x2xf32>)
    %r = mpt.reshape %n : (tensor<3x2x10xf32>) -> tensor<3x4x5xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4x5xf32>
    %bb = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4x5xf32>
    %rs = mpt.mul %r, %sb : tensor<3x4x5xf32>
    %a = mpt.add %rs, %bb : tensor<3x4x5xf32>
    %f = mpt.mul %a, %factor : tensor<3x4x5xf32>
    %y = mpt.compare gt %a, %f : tensor<3x4x5xf32>
    %m = mpt.reduce mean %g {axes = array<i64: 2>} : (tensor<3x2x10xf32>) -> tensor<3x2xf32>
    return %y, %m : tensor<3x4x5xi1>, tensor<3x2xf32>
  }
}

// SUMS: mpt.group_norm %arg0, %{{.*}}, %{{.*}} {epsilon = {{.*}}, groups = 2 : i64} : (tensor<3x4x5xf32>
// SUMS-NOT: mpt.{{reduce|sqrt}}
//--- sums.mlir
module attributes {onnx.training = {backward = "derived", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  train.state parameter @b : tensor<4xf32> = dense<0.5> : tensor<4xf32>
  func.func @forward(%x: tensor<3x4x5xf32>) -> (tensor<3x4x5xf32> {mpt.name = "y"}) {
    %eps = mpt.constant dense<1.0e-5> : tensor<3x2xf32>
    %s = train.read @s : tensor<4xf32>
    %b = train.read @b : tensor<4xf32>
    %g = mpt.reshape %x : (tensor<3x4x5xf32>) -> tensor<3x2x2x5xf32>
    %m = mpt.reduce mean %g {axes = array<i64: 2, 3>} : (tensor<3x2x2x5xf32>) -> tensor<3x2xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<3x2x2x5xf32>
    %c = mpt.sub %g, %mb : tensor<3x2x2x5xf32>
    %q = mpt.mul %c, %c : tensor<3x2x2x5xf32>
    %v = mpt.reduce mean %q {axes = array<i64: 2, 3>} : (tensor<3x2x2x5xf32>) -> tensor<3x2xf32>
    %ve = mpt.add %v, %eps : tensor<3x2xf32>
    %d = mpt.sqrt %ve : tensor<3x2xf32>
    %db = mpt.broadcast %d {dims = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<3x2x2x5xf32>
    %n = mpt.div %c, %db : tensor<3x2x2x5xf32>
    %r = mpt.reshape %n : (tensor<3x2x2x5xf32>) -> tensor<3x4x5xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4x5xf32>
    %bb = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<4xf32>) -> tensor<3x4x5xf32>
    %rs = mpt.mul %r, %sb : tensor<3x4x5xf32>
    %y = mpt.add %rs, %bb : tensor<3x4x5xf32>
    return %y : tensor<3x4x5xf32>
  }
}

// Groups of one channel, without scale and bias.
// INSTANCE: %[[ONE:.*]] = mpt.constant dense<1.0
// INSTANCE: mpt.group_norm %arg0, %[[ONE]], %{{.*}} {epsilon = {{.*}}, groups = 4 : i64} : (tensor<3x4x5xf32>
// INSTANCE-NOT: mpt.reduce
//--- instance.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  func.func @forward(%x: tensor<3x4x5xf32>) -> (tensor<3x4x5xf32> {mpt.name = "y"}) {
    %eps = mpt.constant dense<1.0e-5> : tensor<3x4xf32>
    %m = mpt.reduce mean %x {axes = array<i64: 2>} : (tensor<3x4x5xf32>) -> tensor<3x4xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x5xf32>
    %c = mpt.sub %x, %mb : tensor<3x4x5xf32>
    %q = mpt.mul %c, %c : tensor<3x4x5xf32>
    %v = mpt.reduce mean %q {axes = array<i64: 2>} : (tensor<3x4x5xf32>) -> tensor<3x4xf32>
    %ve = mpt.add %v, %eps : tensor<3x4xf32>
    %d = mpt.rsqrt %ve : tensor<3x4xf32>
    %db = mpt.broadcast %d {dims = array<i64: 0, 1>} : (tensor<3x4xf32>) -> tensor<3x4x5xf32>
    %y = mpt.mul %c, %db : tensor<3x4x5xf32>
    return %y : tensor<3x4x5xf32>
  }
}

// A scale for each element is none of a channel.
// ELEMENTS: mpt.group_norm %{{.*}} {epsilon = {{.*}}, groups = 2 : i64} : (tensor<3x2x10xf32>
// ELEMENTS: mpt.mul
//--- elements.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  train.state parameter @s : tensor<5xf32> = dense<0.5> : tensor<5xf32>
  func.func @forward(%x: tensor<3x4x5xf32>) -> (tensor<3x4x5xf32> {mpt.name = "y"}) {
    %one = mpt.constant dense<1.0> : tensor<2xf32>
    %zero = mpt.constant dense<0.0> : tensor<2xf32>
    %s = train.read @s : tensor<5xf32>
    %g = mpt.reshape %x : (tensor<3x4x5xf32>) -> tensor<3x2x10xf32>
    %n, %nm, %nr = mpt.group_norm %g, %one, %zero {epsilon = 1.0e-5 : f64, groups = 2 : i64} : (tensor<3x2x10xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<3x2x10xf32>, tensor<3x2xf32>, tensor<3x2xf32>)
    %r = mpt.reshape %n : (tensor<3x2x10xf32>) -> tensor<3x4x5xf32>
    %sb = mpt.broadcast %s {dims = array<i64: 2>} : (tensor<5xf32>) -> tensor<3x4x5xf32>
    %y = mpt.mul %r, %sb : tensor<3x4x5xf32>
    return %y : tensor<3x4x5xf32>
  }
}

// With nothing behind it the operator stays.
// ALONE: mpt.group_norm %{{.*}} {epsilon = {{.*}}, groups = 2 : i64} : (tensor<3x2x10xf32>
//--- alone.mlir
module attributes {onnx.training = {backward = "file", gradients = {w_grad = @w}, loss = "y", next = {}}} {
  func.func @forward(%x: tensor<3x4x5xf32>) -> (tensor<3x4x5xf32> {mpt.name = "y"}) {
    %one = mpt.constant dense<1.0> : tensor<2xf32>
    %zero = mpt.constant dense<0.0> : tensor<2xf32>
    %g = mpt.reshape %x : (tensor<3x4x5xf32>) -> tensor<3x2x10xf32>
    %n, %nm, %nr = mpt.group_norm %g, %one, %zero {epsilon = 1.0e-5 : f64, groups = 2 : i64} : (tensor<3x2x10xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<3x2x10xf32>, tensor<3x2xf32>, tensor<3x2xf32>)
    %y = mpt.reshape %n : (tensor<3x2x10xf32>) -> tensor<3x4x5xf32>
    return %y : tensor<3x4x5xf32>
  }
}
