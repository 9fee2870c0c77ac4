// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// Scale types: which values carry which scale, and which may not meet.

func.func @product_of_two(%scale: tensor<f32>) -> tensor<4xf32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  %1 = mpt.mul %0, %0 : tensor<4xf32>
  // expected-error @below {{expected a gradient that carries the loss scale once, got it 2 times}}
  %2 = train.unscale %1, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  // expected-error @below {{expected result 0 without a scale, got the scale argument 0: train.unscale is missing}}
  return %2 : tensor<4xf32>
}

// -----

// The square of a scaled gradient, unscaled twice over by hand: exponents say that nothing is left.
func.func @square(%scale: tensor<f32>) -> tensor<4xf32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  %1 = mpt.mul %0, %0 : tensor<4xf32>
  %2 = mpt.sqrt %1 : tensor<4xf32>
  %3 = train.unscale %2, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %4 = mpt.sqrt %3 : tensor<4xf32>
  // expected-error @below {{expected an operand whose scale has this root, got the scale argument 0}}
  %5 = mpt.sqrt %0 : tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

module {
  train.state parameter @w : tensor<4xf32>
  func.func @squared_gradient(%scale: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %0 : tensor<4xf32>
    // expected-error @below {{expected an unscaled gradient of w}}
    %2 = train.gradient @w, %1 : tensor<4xf32>
    return
  }
}

// -----

func.func @norm(%scale: tensor<f32>) -> tensor<f32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  // expected-error @below {{expected operand 0 without a scale, got the scale argument 0: the result is not in proportion to it, so train.unscale has to come first}}
  %1 = train.global_norm %0 : (tensor<4xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Clipping by value, and by a coefficient that takes the scale for size.
func.func @clipped(%scale: tensor<f32>) -> tensor<4xf32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  // expected-error @below {{expected operand 0 without a scale}}
  %1 = mpt.clamp %0 {low = -1.0 : f64, high = 1.0 : f64} : tensor<4xf32>
  %limit = mpt.constant dense<1.0> : tensor<4xf32>
  // expected-error @below {{expected operands that carry one scale, got the scale argument 0 and no scale: train.rescale or train.unscale is missing}}
  %2 = mpt.min %0, %limit : tensor<4xf32>
  %3 = mpt.mul %0, %0 : tensor<4xf32>
  %4 = mpt.reduce sum %3 {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %5 = mpt.sqrt %4 : tensor<f32>
  %epsilon = mpt.constant dense<1.0e-6> : tensor<f32>
  // expected-error @below {{expected operands that carry one scale, got the scale argument 0 and no scale}}
  %6 = mpt.add %5, %epsilon : tensor<f32>
  return %1 : tensor<4xf32>
}

// -----

// The empty set of scales meets another one; zeros fit any.
func.func @meets(%x: tensor<4xf32>, %scale: tensor<f32>) -> tensor<4xf32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %zero = mpt.constant dense<0.0> : tensor<4xf32>
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  %1 = mpt.add %0, %zero : tensor<4xf32>
  // expected-error @below {{expected operands that carry one scale, got the scale argument 1 and no scale}}
  %2 = mpt.add %1, %x : tensor<4xf32>
  // expected-error @below {{expected operands that carry one scale, got no scale and the scale argument 1}}
  %3 = mpt.sub %x, %1 : tensor<4xf32>
  %positive = mpt.compare gt %0, %zero : tensor<4xf32>
  // expected-error @below {{expected operands that carry one scale}}
  %above = mpt.compare gt %0, %x : tensor<4xf32>
  // expected-error @below {{expected operands that carry one scale}}
  %4 = mpt.select %positive, %0, %x : tensor<4xi1>, tensor<4xf32>
  // expected-error @below {{expected operand 0 without a scale}}
  %5 = mpt.exp %0 : tensor<4xf32>
  %6 = train.unscale %0, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %6 : tensor<4xf32>
}

// -----

// A gradient is linear in the gradient of the result, and in nothing else.
func.func @linear_in_one(%x: tensor<4xf32>, %scale: tensor<f32>) -> tensor<4xf32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  %1 = mpt.tanh_backward %0, %x : tensor<4xf32>
  // expected-error @below {{expected operand 1 without a scale}}
  %2 = mpt.tanh_backward %x, %0 : tensor<4xf32>
  %3 = train.unscale %1, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// -----

// The value of a scale's state is a scale wherever it is read, and nothing else is written there.
module {
  train.state scale @s : tensor<f32> = dense<2.0> : tensor<f32>
  train.state statistic @mean : tensor<f32> = dense<2.0> : tensor<f32>
  func.func @scale_as_number(%x: tensor<f32>) -> tensor<f32> {
    %s = train.read @s : tensor<f32>
    %0 = mpt.mul %x, %s : tensor<f32>
    // expected-error @below {{expected a value without the loss scale for state mean, got the scale s}}
    train.write @mean, %0 : tensor<f32>
    // expected-error @below {{expected a scale for state s, got a value with no scale}}
    train.write @s, %x : tensor<f32>
    %1 = mpt.div %0, %s : tensor<f32>
    return %1 : tensor<f32>
  }
}

// -----

// Elements that carry different scales stay apart.
func.func @mixed(%x: tensor<4xf32>, %scale: tensor<f32>) -> tensor<8xf32> {
  %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
  %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
  %1 = mpt.concat %0, %x {axis = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  // expected-error @below {{expected a gradient that carries one scale, got a scale of its own for each element}}
  %2 = train.unscale %1, %scale : (tensor<8xf32>, tensor<f32>) -> tensor<8xf32>
  // expected-error @below {{expected result 0 without a scale, got a scale of its own for each element}}
  return %1 : tensor<8xf32>
}

// -----

// An op that nobody gave a rule.
func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{expected a rule by which loss scales go through it, got none}}
  %0 = builtin.unrealized_conversion_cast %x : tensor<4xf32> to tensor<4xf32>
  return %0 : tensor<4xf32>
}
