// RUN: mpt-opt %s --fusion-verify-scales --split-input-file --verify-diagnostics

// A network that unrolls over time begins with a GEMM of zeros, whose sum is the bias alone.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  func.func @step(%w: tensor<4x4xf16>, %bias: tensor<4xf16>) -> tensor<2x4xf16> {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %zeros = mpt.constant dense<0.0> : tensor<2x4xf16>
    %y = library.gemm %zeros, %w bias %bias : tensor<4xf16> : tensor<2x4xf16>, tensor<4x4xf16> -> tensor<2x4xf16>
    return %y : tensor<2x4xf16>
  }
}

// -----

// The bias keeps its scale.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  func.func @step(%w: tensor<4x4xf16>, %bias: tensor<4xf16>) -> tensor<2x4xf16> {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %narrow = mpt.cast %s : tensor<f32> to tensor<f16>
    %all = mpt.broadcast %narrow {dims = array<i64>} : (tensor<f16>) -> tensor<4xf16>
    %scaled = mpt.mul %bias, %all : tensor<4xf16>
    %zeros = mpt.constant dense<0.0> : tensor<2x4xf16>
    %y = library.gemm %zeros, %w bias %scaled : tensor<4xf16> : tensor<2x4xf16>, tensor<4x4xf16> -> tensor<2x4xf16>
    // expected-error @below {{expected result 0 without a scale, got the scale mpt.loss_scale}}
    return %y : tensor<2x4xf16>
  }
}
