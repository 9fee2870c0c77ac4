// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// Which gradients an update is made of, and whose.

// A gradient on its way round the check.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %2 = mpt.mul %0, %y : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %gv = train.unscale %2, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %h = train.gradient @v, %gv : tensor<4xf32>
    %finite = train.all_finite %g, %h : (tensor<4xf32>, tensor<4xf32>) -> tensor<i1>
    %3 = mpt.mul %1, %y : tensor<4xf32>
    %sign = mpt.sign %3 : tensor<4xf32>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw0 = mpt.sub %w, %g : tensor<4xf32>
    %nw = mpt.sub %nw0, %sign : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    // expected-error @below {{expected a finite check of every gradient that reaches w, got one that does not look at some}}
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A second loss that is not scaled.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %two = mpt.constant dense<2.0> : tensor<4xf32>
    %2 = mpt.mul %two, %y : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    // expected-error @below {{expected a gradient of a loss that is scaled, as the policy says, got one of another seed: train.scale_loss is missing}}
    %h = train.gradient @v, %2 : tensor<4xf32>
    %finite = train.all_finite %g, %h : (tensor<4xf32>, tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// The gradient, the old value and the state of another parameter.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %2 = mpt.mul %0, %y : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %gv = train.unscale %2, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %h = train.gradient @v, %gv : tensor<4xf32>
    %finite = train.all_finite %g, %h : (tensor<4xf32>, tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %g : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    // expected-error @below {{expected an update by the gradient of v, got one by that of w}}
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %2 = mpt.mul %0, %y : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %gv = train.unscale %2, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %h = train.gradient @v, %gv : tensor<4xf32>
    %finite = train.all_finite %g, %h : (tensor<4xf32>, tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %w, %h : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    // expected-error @below {{expected an update that starts from v, got one from w}}
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A gradient whose parameter nobody writes.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %2 = mpt.mul %0, %y : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %gv = train.unscale %2, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    // expected-error @below {{expected a write of v, which this is the gradient of}}
    %h = train.gradient @v, %gv : tensor<4xf32>
    %finite = train.all_finite %g, %h : (tensor<4xf32>, tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}
