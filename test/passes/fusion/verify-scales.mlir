// RUN: mpt-opt %s --fusion-verify-scales --split-input-file --verify-diagnostics
// Commits and results of scaled gradients, through fusions and library calls.

// Scaled, contracted, unscaled, checked and committed: nothing is wrong.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state parameter @w : tensor<16x4xf32>
  func.func @step(%x: tensor<8x16xf16>, %dy: tensor<8x4xf32>) -> (tensor<f32> {mpt.name = "loss_scale", train.role = #train<role loss_scale>}) {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %w = train.read @w : tensor<16x4xf32>
    %scaled = mpt.fusion(%dy, %s) : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xf16> {
    ^bb0(%a: tensor<8x4xf32>, %b: tensor<f32>):
      %0 = mpt.broadcast %b {dims = array<i64>} : (tensor<f32>) -> tensor<8x4xf32>
      %1 = mpt.mul %a, %0 : tensor<8x4xf32>
      %2 = mpt.cast %1 : tensor<8x4xf32> to tensor<8x4xf16>
      mpt.yield %2 : tensor<8x4xf16>
    }
    %g = library.gemm %x, %scaled {transpose_a = true} : tensor<8x16xf16>, tensor<8x4xf16> -> tensor<16x4xf32>
    %next, %next_scale = mpt.fusion(%g, %s, %w) : (tensor<16x4xf32>, tensor<f32>, tensor<16x4xf32>) -> (tensor<16x4xf32>, tensor<f32>) {
    ^bb0(%a: tensor<16x4xf32>, %b: tensor<f32>, %c: tensor<16x4xf32>):
      %0 = mpt.reciprocal %b : tensor<f32>
      %1 = mpt.broadcast %0 {dims = array<i64>} : (tensor<f32>) -> tensor<16x4xf32>
      %2 = mpt.mul %a, %1 : tensor<16x4xf32>
      %3 = mpt.abs %a : tensor<16x4xf32>
      %4 = mpt.reduce max %3 {axes = array<i64: 0, 1>} : (tensor<16x4xf32>) -> tensor<f32>
      %5 = mpt.is_finite %4 : tensor<f32>
      %6 = mpt.broadcast %5 {dims = array<i64>} : (tensor<i1>) -> tensor<16x4xi1>
      %7 = mpt.sub %c, %2 : tensor<16x4xf32>
      %8 = mpt.select %6, %7, %c : tensor<16x4xi1>, tensor<16x4xf32>
      %half = mpt.constant dense<0.5> : tensor<f32>
      %9 = mpt.mul %b, %half : tensor<f32>
      %10 = mpt.select %5, %b, %9 {train.scale} : tensor<i1>, tensor<f32>
      mpt.yield %8, %10 : tensor<16x4xf32>, tensor<f32>
    }
    train.write @w, %next : tensor<16x4xf32>
    train.write @mpt.loss_scale, %next_scale : tensor<f32>
    return %s : tensor<f32>
  }
}

// -----

// The unscaling is gone.
module {
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
    // expected-error @below {{expected a value without a scale for state momentum, got the scale mpt.loss_scale: a pass behind precision-verify lost, doubled or added a factor}}
    train.write @momentum, %g : tensor<4xf32>
    return
  }
}

// -----

// A scaled gradient is taken off a parameter, and a norm looks at one.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state parameter @w : tensor<4xf32>
  func.func @step(%dy: tensor<4xf32>) -> tensor<f32> {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %w = train.read @w : tensor<4xf32>
    %0 = mpt.broadcast %s {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %1 = mpt.mul %dy, %0 : tensor<4xf32>
    // expected-note @below {{from mpt.sub on its scale is unknown}}
    %2 = mpt.sub %w, %1 : tensor<4xf32>
    %3 = mpt.mul %1, %1 : tensor<4xf32>
    %4 = mpt.reduce sum %3 {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
    %eps = mpt.constant dense<1.0e-6> : tensor<f32>
    // expected-note @below {{from mpt.add on its scale is unknown}}
    %5 = mpt.add %4, %eps : tensor<f32>
    // expected-error @below {{expected a value without a scale for state w, got a scale of its own for each element}}
    train.write @w, %2 : tensor<4xf32>
    // expected-error @below {{expected result 0 without a scale, got the scale mpt.add}}
    return %5 : tensor<f32>
  }
}

// -----

// Unscaled twice, by a call's scale and once more; the call's other results carry the scale of their operands.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  train.state accumulator @sum : tensor<16x4xf32> = dense<0.0> : tensor<16x4xf32>
  train.state accumulator @bias : tensor<4xf32> = dense<0.0> : tensor<4xf32>
  func.func @step(%x: tensor<8x16xf16>, %dy: tensor<8x4xf16>) {
    %s = train.read @mpt.loss_scale : tensor<f32>
    %b = mpt.cast %s : tensor<f32> to tensor<f16>
    %0 = mpt.broadcast %b {dims = array<i64>} : (tensor<f16>) -> tensor<8x4xf16>
    %scaled = mpt.mul %dy, %0 : tensor<8x4xf16>
    %inverse = mpt.reciprocal %s : tensor<f32>
    %g, %sums = library.gemm %x, %scaled {transpose_a = true, epilogue = #library.epilogue<sum = b>} : tensor<8x16xf16>, tensor<8x4xf16> -> tensor<16x4xf32> sums tensor<4xf32>
    %1 = mpt.broadcast %inverse {dims = array<i64>} : (tensor<f32>) -> tensor<16x4xf32>
    %2 = mpt.mul %g, %1 : tensor<16x4xf32>
    %3 = mpt.mul %2, %1 : tensor<16x4xf32>
    // expected-error @below {{for state sum, got the scale mpt.loss_scale^-1}}
    train.write @sum, %3 : tensor<16x4xf32>
    // expected-error @below {{for state bias, got the scale mpt.loss_scale}}
    train.write @bias, %sums : tensor<4xf32>
    return
  }
}

// -----

// Factors that a step makes itself. Two kernels compute one of them, each for itself: it is one scale.
func.func @layers(%g: tensor<4xf32>, %h: tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %up = mpt.fusion(%g, %h) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
    %0 = mpt.exp %b {train.scale} : tensor<f32>
    %1 = mpt.broadcast %0 {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %2 = mpt.mul %a, %1 : tensor<4xf32>
    mpt.yield %2 : tensor<4xf32>
  }
  %down, %not = mpt.fusion(%up, %h) : (tensor<4xf32>, tensor<f32>) -> (tensor<4xf32>, tensor<4xf32>) {
  ^bb0(%a: tensor<4xf32>, %b: tensor<f32>):
    %0 = mpt.exp %b {mpt.recomputed, train.scale} : tensor<f32>
    %1 = mpt.broadcast %0 {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %2 = mpt.div %a, %1 : tensor<4xf32>
    %other = mpt.neg %b : tensor<f32>
    %3 = mpt.exp %other {train.scale} : tensor<f32>
    %4 = mpt.broadcast %3 {dims = array<i64>} : (tensor<f32>) -> tensor<4xf32>
    %5 = mpt.div %a, %4 : tensor<4xf32>
    mpt.yield %2, %5 : tensor<4xf32>, tensor<4xf32>
  }
  // expected-error @below {{expected result 1 without a scale, got the scale mpt.exp}}
  return %down, %not : tensor<4xf32>, tensor<4xf32>
}

// -----

// Scales of 8-bit tensors, as elements of one state: the product leaves both, or one of them.
module {
  train.state statistic @mpt.tensor_scales : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  func.func @step(%x: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
    %all = train.read @mpt.tensor_scales : tensor<2xf32>
    %0 = mpt.slice %all {starts = array<i64: 0>, sizes = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xf32>) -> tensor<1xf32>
    %first = mpt.reshape %0 : (tensor<1xf32>) -> tensor<f32>
    %1 = mpt.slice %all {starts = array<i64: 1>, sizes = array<i64: 1>, strides = array<i64: 1>} : (tensor<2xf32>) -> tensor<1xf32>
    %second = mpt.reshape %1 : (tensor<1xf32>) -> tensor<f32>
    %a = mpt.broadcast %first {dims = array<i64>} : (tensor<f32>) -> tensor<16x16xf32>
    %b = mpt.broadcast %second {dims = array<i64>} : (tensor<f32>) -> tensor<16x16xf32>
    %xa = mpt.mul %x, %a : tensor<16x16xf32>
    %xb = mpt.mul %x, %b : tensor<16x16xf32>
    %q = mpt.cast %xa : tensor<16x16xf32> to tensor<16x16xf8E4M3FN>
    %r = mpt.cast %xb : tensor<16x16xf32> to tensor<16x16xf8E4M3FN>
    %ia = mpt.reciprocal %first : tensor<f32>
    %ib = mpt.reciprocal %second : tensor<f32>
    %y = library.gemm %q, %r operand_scales %ia, %ib : tensor<f32>, tensor<f32> : tensor<16x16xf8E4M3FN>, tensor<16x16xf8E4M3FN> -> tensor<16x16xf32>
    %z = library.gemm %q, %r operand_scales %ia, %ia : tensor<f32>, tensor<f32> : tensor<16x16xf8E4M3FN>, tensor<16x16xf8E4M3FN> -> tensor<16x16xf32>
    // expected-error @below {{expected result 1 without a scale, got the scale mpt.}}
    return %y, %z : tensor<16x16xf32>, tensor<16x16xf32>
  }
}

// -----

// The scale itself, in place of the loss.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  func.func @step() -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
    %s = train.read @mpt.loss_scale : tensor<f32>
    // expected-error @below {{expected result 0 without a scale, got the scale mpt.loss_scale}}
    return %s : tensor<f32>
  }
}

// -----

// A test looks at values on the way, whatever their scale.
module {
  train.state scale @mpt.loss_scale : tensor<f32> = dense<1024.0> : tensor<f32>
  func.func @step() -> (tensor<f32> {check.observed, mpt.name = "seen"}) {
    %s = train.read @mpt.loss_scale : tensor<f32>
    return %s : tensor<f32>
  }
}
