// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign --precision-insert-casts --precision-master-weights --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify -o /dev/null
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=amp-bf16 --precision-insert-casts --precision-master-weights --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify -o /dev/null
// RUN: mpt-opt %S/Inputs/linear.mlir --precision-assign --precision-insert-casts --precision-master-weights --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify -o /dev/null

module {
  train.state parameter @w : tensor<4xf32>
  func.func @step(%x: tensor<4xf32>, %scale: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    // expected-error @below {{expected an unscaled gradient of w, got one that carries the loss scale: train.unscale is missing}}
    %g = train.gradient @w, %1 : tensor<4xf32>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf32>
  func.func @step(%x: tensor<4xf32>, %scale: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %scale : tensor<4xf32>, tensor<f32>
    // expected-error @below {{the loss is scaled twice}}
    %1 = train.scale_loss %0, %scale : tensor<4xf32>, tensor<f32>
    // expected-error @below {{expected a gradient that carries the loss scale once, got it 2 times}}
    %2 = train.unscale %1, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %3 = train.unscale %2, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    // expected-error @below {{expected a gradient that carries the loss scale once, got it 0 times}}
    %4 = train.unscale %3, %scale : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  // expected-error @below {{expected the loss to be scaled, as the policy says: run precision-loss-scaling}}
  func.func @step(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    // expected-error @below {{expected a condition: a step whose gradients are not finite must leave w as it is}}
    train.write @w, %g : tensor<4xf32>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf32>
  func.func @step(%x: tensor<4xf32>, %scale: tensor<f32>) {
    %0 = train.scale_loss %x, %scale : tensor<4xf32>, tensor<f32>
    // expected-error @below {{expected a value without the loss scale for state w}}
    train.write @w, %0 : tensor<4xf32>
    return
  }
}

// -----

func.func @accumulator(%a: tensor<4x4xf16>) -> tensor<4x4xf16> {
  // expected-error @below {{expected an accumulator of at least 'f32', got 'f16'}}
  %0 = mpt.matmul %a, %a {numerics = #mpt.numerics<in = f16, acc = f16, out = f16>} : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>
  return %0 : tensor<4x4xf16>
}

// -----

func.func @pinned(%x: tensor<2x4xf16>, %s: tensor<4xf16>) -> tensor<2x4xf16> {
  // expected-error @below {{expected f32 or wider for operand 1, got 'f16'}}
  %y, %mean, %std = mpt.layer_norm %x, %s, %s {axis = 1, epsilon = 1.0e-5} : (tensor<2x4xf16>, tensor<4xf16>, tensor<4xf16>) -> (tensor<2x4xf16>, tensor<2xf32>, tensor<2xf32>)
  return %y : tensor<2x4xf16>
}

// -----

module {
  // expected-error @below {{expected a master of w, which is trained and stored as 'f16': run precision-master-weights}}
  train.state parameter @w : tensor<4xf16>
  // expected-error @below {{expected f32 for state of role slot, got 'f16'}}
  train.state slot @w.m : tensor<4xf16> of "w"
  func.func @step(%x: tensor<4xf16>) {
    train.write @w, %x : tensor<4xf16>
    return
  }
}

// -----

// expected-error @below {{expected 2 rounding casts, got 1: a pass dropped or added a rounding}}
func.func @elided(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mpt.lossy_casts = 2 : i64} {
  %0 = mpt.cast %x : tensor<4xf32> to tensor<4xbf16>
  %1 = mpt.cast %0 : tensor<4xbf16> to tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

module {
  train.state parameter @w : tensor<4xf32>
  func.func @step(%x: tensor<4xf32>, %one: tensor<f32>, %two: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %one : tensor<4xf32>, tensor<f32>
    %1 = train.rescale %0, %one to %two : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4xf32>
    // expected-error @below {{expected operands that carry one scale, got}}
    %2 = mpt.add %0, %1 : tensor<4xf32>
    // expected-error @below {{expected the scale that the gradient carries, got another one}}
    %3 = train.unscale %1, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    // expected-error @below {{expected the scale that the gradient carries, got another one}}
    %4 = train.rescale %1, %one to %two : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4xf32>
    %5 = train.unscale %1, %two : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %5 : tensor<4xf32>
    return
  }
}

// -----

// A residual connection: both branches come to one scale before their sum, which loses that one.
module {
  train.state parameter @w : tensor<4xf32>
  func.func @merged(%x: tensor<4xf32>, %one: tensor<f32>, %two: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %one : tensor<4xf32>, tensor<f32>
    %1 = train.rescale %0, %one to %two : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4xf16>
    %2 = mpt.cast %1 : tensor<4xf16> to tensor<4xf32>
    %target = train.merge_scale(%one, %two) maxima(%one, %two) {largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
    %3 = train.rescale %0, %one to %target : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4xf32>
    %4 = train.rescale %2, %two to %target : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4xf32>
    %5 = mpt.add %3, %4 : tensor<4xf32>
    %6 = train.unscale %5, %target : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %6 : tensor<4xf32>
    return
  }
}

// -----

// A cast boundary: the branch that was rounded carries another scale than the one that was not.
module {
  train.state parameter @w : tensor<4xf32>
  func.func @cast_boundary(%x: tensor<4xf32>, %one: tensor<f32>, %two: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %one : tensor<4xf32>, tensor<f32>
    %1 = train.rescale %0, %one to %two : (tensor<4xf32>, tensor<f32>, tensor<f32>) -> tensor<4xf16>
    %2 = mpt.cast %1 : tensor<4xf16> to tensor<4xf32>
    // expected-error @below {{expected operands that carry one scale, got}}
    %3 = mpt.max %0, %2 : tensor<4xf32>
    return
  }
}

// -----

// Two losses with a scale each; one parameter's gradient loses the other's.
module {
  train.state parameter @w : tensor<4xf32>
  func.func @losses(%one: tensor<f32>, %two: tensor<f32>) {
    %a = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed = "a"}
    %b = mpt.constant dense<2.0> : tensor<4xf32> {mpt.seed = "b"}
    %0 = train.scale_loss %a, %one : tensor<4xf32>, tensor<f32>
    %1 = train.scale_loss %b, %two : tensor<4xf32>, tensor<f32>
    // expected-error @below {{expected operands that carry one scale, got}}
    %2 = mpt.add %0, %1 : tensor<4xf32>
    // expected-error @below {{expected the scale that the gradient carries, got another one}}
    %3 = train.unscale %1, %one : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    // expected-error @below {{expected an unscaled gradient of w}}
    %g = train.gradient @w, %3 : tensor<4xf32>
    return
  }
}

// -----

module {
  func.func @squared(%scale: tensor<f32>) {
    %seed = mpt.constant dense<1.0> : tensor<4x4xf32> {mpt.seed}
    %0 = train.scale_loss %seed, %scale : tensor<4x4xf32>, tensor<f32>
    %1 = mpt.matmul %0, %0 : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    // expected-error @below {{expected a gradient that carries the loss scale once, got it 2 times}}
    %2 = train.unscale %1, %scale : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>
    return
  }
}
