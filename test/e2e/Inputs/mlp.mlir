// A step of SGD on a two-layer perceptron with mean squared error, as the fusion phase leaves it.
module attributes {mpt.name = "mlp", mpt.manifest = {learning_rate = 0.1}} {
  train.state parameter @w1 : tensor<5x16xf32> = dense<0.0> : tensor<5x16xf32>
  train.state parameter @b1 : tensor<16xf32> = dense<0.0> : tensor<16xf32>
  train.state parameter @w2 : tensor<16x3xf32> = dense<0.0> : tensor<16x3xf32>
  train.state counter @steps : tensor<i64> = dense<0> : tensor<i64>

  func.func @step(%x: tensor<8x5xf32> {mpt.name = "x"}, %y: tensor<8x3xf32> {mpt.name = "y"},
                  %lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
    %w1 = train.read @w1 : tensor<5x16xf32>
    %b1 = train.read @b1 : tensor<16xf32>
    %w2 = train.read @w2 : tensor<16x3xf32>
    %n = train.read @steps : tensor<i64>
    %p = mpt.matmul %x, %w1 : (tensor<8x5xf32>, tensor<5x16xf32>) -> tensor<8x16xf32>
    %h = mpt.fusion(%p, %b1) : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8x16xf32> {
    ^bb0(%v: tensor<8x16xf32>, %b: tensor<16xf32>):
      %r = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<16xf32>) -> tensor<8x16xf32>
      %s = mpt.add %v, %r : tensor<8x16xf32>
      %a = mpt.relu %s : tensor<8x16xf32>
      mpt.yield %a : tensor<8x16xf32>
    }
    %o = mpt.matmul %h, %w2 : (tensor<8x16xf32>, tensor<16x3xf32>) -> tensor<8x3xf32>
    %loss, %do = mpt.fusion(%o, %y) : (tensor<8x3xf32>, tensor<8x3xf32>) -> (tensor<f32>, tensor<8x3xf32>) {
    ^bb0(%v: tensor<8x3xf32>, %t: tensor<8x3xf32>):
      %c = mpt.constant dense<0.083333336> : tensor<8x3xf32>
      %d = mpt.sub %v, %t : tensor<8x3xf32>
      %q = mpt.mul %d, %d : tensor<8x3xf32>
      %m = mpt.reduce mean %q {axes = array<i64: 0, 1>} : (tensor<8x3xf32>) -> tensor<f32>
      %g = mpt.mul %d, %c : tensor<8x3xf32>
      mpt.yield %m, %g : tensor<f32>, tensor<8x3xf32>
    }
    %dw2 = mpt.matmul %h, %do {transpose_a = true} : (tensor<8x16xf32>, tensor<8x3xf32>) -> tensor<16x3xf32>
    %dh = mpt.matmul %do, %w2 {transpose_b = true} : (tensor<8x3xf32>, tensor<16x3xf32>) -> tensor<8x16xf32>
    %dp, %db1 = mpt.fusion(%dh, %h) : (tensor<8x16xf32>, tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<16xf32>) {
    ^bb0(%g: tensor<8x16xf32>, %v: tensor<8x16xf32>):
      %d = mpt.relu_backward %g, %v : tensor<8x16xf32>
      %s = mpt.reduce sum %d {axes = array<i64: 0>} : (tensor<8x16xf32>) -> tensor<16xf32>
      mpt.yield %d, %s : tensor<8x16xf32>, tensor<16xf32>
    }
    %dw1 = mpt.matmul %x, %dp {transpose_a = true} : (tensor<8x5xf32>, tensor<8x16xf32>) -> tensor<5x16xf32>
    %w1n = mpt.fusion(%w1, %dw1, %lr) : (tensor<5x16xf32>, tensor<5x16xf32>, tensor<f32>) -> tensor<5x16xf32> {
    ^bb0(%p0: tensor<5x16xf32>, %g: tensor<5x16xf32>, %l: tensor<f32>):
      %r = mpt.broadcast %l {dims = array<i64>} : (tensor<f32>) -> tensor<5x16xf32>
      %s = mpt.mul %g, %r : tensor<5x16xf32>
      %d = mpt.sub %p0, %s : tensor<5x16xf32>
      mpt.yield %d : tensor<5x16xf32>
    }
    %b1n = mpt.fusion(%b1, %db1, %lr) : (tensor<16xf32>, tensor<16xf32>, tensor<f32>) -> tensor<16xf32> {
    ^bb0(%p0: tensor<16xf32>, %g: tensor<16xf32>, %l: tensor<f32>):
      %r = mpt.broadcast %l {dims = array<i64>} : (tensor<f32>) -> tensor<16xf32>
      %s = mpt.mul %g, %r : tensor<16xf32>
      %d = mpt.sub %p0, %s : tensor<16xf32>
      mpt.yield %d : tensor<16xf32>
    }
    %w2n = mpt.fusion(%w2, %dw2, %lr) : (tensor<16x3xf32>, tensor<16x3xf32>, tensor<f32>) -> tensor<16x3xf32> {
    ^bb0(%p0: tensor<16x3xf32>, %g: tensor<16x3xf32>, %l: tensor<f32>):
      %r = mpt.broadcast %l {dims = array<i64>} : (tensor<f32>) -> tensor<16x3xf32>
      %s = mpt.mul %g, %r : tensor<16x3xf32>
      %d = mpt.sub %p0, %s : tensor<16x3xf32>
      mpt.yield %d : tensor<16x3xf32>
    }
    %nn = mpt.fusion(%n) : (tensor<i64>) -> tensor<i64> {
    ^bb0(%k: tensor<i64>):
      %one = mpt.constant dense<1> : tensor<i64>
      %k1 = mpt.add %k, %one : tensor<i64>
      mpt.yield %k1 : tensor<i64>
    }
    train.write @w1, %w1n : tensor<5x16xf32>
    train.write @b1, %b1n : tensor<16xf32>
    train.write @w2, %w2n : tensor<16x3xf32>
    train.write @steps, %nn : tensor<i64>
    return %loss : tensor<f32>
  }
}
