// RUN: mpt-opt %s --import-recognize-norms | FileCheck %s

// Evaluation normalizes with the states whose new value is made of a statistic. [N, C] gets a spatial extent.
// CHECK: %[[X:.*]] = mpt.reshape %arg0 : (tensor<4x3xf32>) -> tensor<4x3x1xf32>
// CHECK: mpt.batch_norm %[[X]], {{.*}}mpt.statistics = [@mean, @var]
module attributes {onnx.training = {backward = "derived", gradients = {w_grad = @w}, loss = "y", next = {m = @mean, v = @var, o = @other}}} {
  train.state parameter @s : tensor<3xf32> = dense<0.5> : tensor<3xf32>
  train.state parameter @b : tensor<3xf32> = dense<0.5> : tensor<3xf32>
  train.state statistic @mean : tensor<3xf32> = dense<0.0> : tensor<3xf32>
  train.state statistic @var : tensor<3xf32> = dense<1.0> : tensor<3xf32>
  train.state statistic @other : tensor<3xf32> = dense<1.0> : tensor<3xf32>
  func.func @forward(%x: tensor<4x3xf32>) -> (tensor<4x3xf32> {mpt.name = "y"}, tensor<3xf32> {mpt.name = "m"}, tensor<3xf32> {mpt.name = "v"}, tensor<3xf32> {mpt.name = "o"}) {
    %eps = mpt.constant dense<1.0e-5> : tensor<3xf32>
    %keep = mpt.constant dense<0.9> : tensor<3xf32>
    %take = mpt.constant dense<0.1> : tensor<3xf32>
    %sample = mpt.constant dense<1.3333334> : tensor<3xf32>
    %s = train.read @s : tensor<3xf32>
    %b = train.read @b : tensor<3xf32>
    %om = train.read @mean : tensor<3xf32>
    %ov = train.read @var : tensor<3xf32>
    %oo = train.read @other : tensor<3xf32>
    %m = mpt.reduce mean %x {axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<3xf32>
    %mb = mpt.broadcast %m {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3xf32>
    %xc = mpt.sub %x, %mb : tensor<4x3xf32>
    %sq = mpt.mul %xc, %xc : tensor<4x3xf32>
    %v = mpt.reduce mean %sq {axes = array<i64: 0>} : (tensor<4x3xf32>) -> tensor<3xf32>
    %ve = mpt.add %v, %eps : tensor<3xf32>
    %r = mpt.rsqrt %ve : tensor<3xf32>
    %rs = mpt.mul %r, %s : tensor<3xf32>
    %rb = mpt.broadcast %rs {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3xf32>
    %xs = mpt.mul %xc, %rb : tensor<4x3xf32>
    %bb = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<4x3xf32>
    %y = mpt.add %bb, %xs : tensor<4x3xf32>
    %m0 = mpt.mul %om, %keep : tensor<3xf32>
    %m1 = mpt.mul %m, %take : tensor<3xf32>
    %nm = mpt.add %m0, %m1 : tensor<3xf32>
    %v0 = mpt.mul %ov, %keep : tensor<3xf32>
    %v1 = mpt.mul %v, %take : tensor<3xf32>
    %v2 = mpt.mul %v1, %sample : tensor<3xf32>
    %nv = mpt.add %v0, %v2 : tensor<3xf32>
    %no = mpt.mul %oo, %keep : tensor<3xf32>
    return %y, %nm, %nv, %no : tensor<4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>
  }
}
