// RUN: mpt-opt %s --fusion-verify-scales --verify-diagnostics
train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
train.state slot @momentum : tensor<4xf32> = dense<0.0> : tensor<4xf32>
func.func @step(%dy: tensor<4xf32>) {
  %s = train.read @mpt.loss_scale : tensor<f32>
  %g = mpt.fusion(%dy, %s) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
    %0 = mpt.broadcast %b {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.mul %a, %0 : tensor<4xf32>
    mpt.yield %1 : tensor<4xf32>
  }
  // expected-error@+1 {{expected a value without a scale for state momentum, got the scale mpt.loss_scale}}
  train.write @momentum, %g : tensor<4xf32>
  return
}
