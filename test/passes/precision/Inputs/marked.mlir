// A step as training-differentiate and training-accumulate leave it.
module {
  train.state parameter @w : tensor<4xf32> = dense<1.0> : tensor<4xf32>
  train.state accumulator @w.accumulator : tensor<4xf32> of "w" = dense<0.0> : tensor<4xf32>
  func.func @step(%x: tensor<4xf32>) {
    %one = mpt.constant dense<1.0> : tensor<4xf32>
    %scale = mpt.constant dense<1.0> : tensor<f32>
    %seed = train.scale_loss %one, %scale {mpt.seed} : tensor<4xf32>, tensor<f32>
    %dw = mpt.mul %seed, %x : tensor<4xf32>
    %g = train.gradient @w, %dw : tensor<4xf32>
    %old = train.read @w.accumulator : tensor<4xf32>
    %sum = mpt.add %old, %g : tensor<4xf32>
    %zero = mpt.constant dense<0.0> : tensor<4xf32>
    train.write @w.accumulator, %zero : tensor<4xf32>
    train.write @w, %sum : tensor<4xf32>
    return
  }
  train.state statistic @mean : tensor<4xf32> = dense<0.0> : tensor<4xf32>
  func.func @accumulate(%x: tensor<4xf32>) {
    %one = mpt.constant dense<1.0> : tensor<4xf32>
    %scale = mpt.constant dense<1.0> : tensor<f32>
    %seed = train.scale_loss %one, %scale {mpt.seed} : tensor<4xf32>, tensor<f32>
    %dw = mpt.mul %seed, %x : tensor<4xf32>
    %g = train.gradient @w, %dw : tensor<4xf32>
    %old = train.read @w.accumulator : tensor<4xf32>
    %sum = mpt.add %old, %g : tensor<4xf32>
    train.write @w.accumulator, %sum : tensor<4xf32>
    train.write @mean, %x : tensor<4xf32>
    return
  }
}
