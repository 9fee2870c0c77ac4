// One linear layer with mean squared error, SGD, a running statistic and a generator: small enough to check by hand.
module {
  train.state parameter @w : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
  train.state statistic @mean : tensor<4x2xf32> = dense<0.0> : tensor<4x2xf32>
  train.state rng @mpt.rng : tensor<2xi64> = dense<[7, 0]> : tensor<2xi64>
  train.state counter @mpt.step : tensor<i64> = dense<0> : tensor<i64>
  func.func @step(%x: tensor<3x4xf32> {mpt.name = "x"}, %target: tensor<3x2xf32> {mpt.name = "target"}, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
    %w = train.read @w : tensor<4x2xf32>
    %stat = train.read @mean : tensor<4x2xf32>
    train.write @mean, %stat : tensor<4x2xf32>
    %y = mpt.matmul %x, %w : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32> loc("linear")
    %d = mpt.sub %y, %target : tensor<3x2xf32> loc("loss")
    %sq = mpt.mul %d, %d : tensor<3x2xf32> loc("loss")
    %loss = mpt.reduce mean %sq {axes = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<f32> loc("loss")
    %seed = mpt.constant dense<1.0> : tensor<f32> {mpt.seed} loc("loss")
    %all = mpt.broadcast %seed {dims = array<i64>} : (tensor<f32>) -> tensor<3x2xf32> loc("loss")
    %factor = mpt.constant dense<0.333333343> : tensor<3x2xf32> loc("loss")
    %half = mpt.mul %all, %factor : tensor<3x2xf32> loc("loss")
    %dy = mpt.mul %half, %d : tensor<3x2xf32> loc("loss")
    %dw = mpt.matmul %x, %dy {transpose_a = true} : (tensor<3x4xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("linear")
    %g = train.gradient @w, %dw : tensor<4x2xf32>
    %old = train.read @mpt.step : tensor<i64>
    %one = mpt.constant dense<1> : tensor<i64>
    %now = mpt.add %old, %one : tensor<i64>
    %new = mpt.sgd %w, %g, %lr, %now : (tensor<4x2xf32>, tensor<4x2xf32>, tensor<f32>, tensor<i64>) -> tensor<4x2xf32>
    train.write @w, %new : tensor<4x2xf32>
    train.write @mpt.step, %now : tensor<i64>
    %key = train.read @mpt.rng : tensor<2xi64>
    train.write @mpt.rng, %key : tensor<2xi64>
    return %loss : tensor<f32>
  }
}
