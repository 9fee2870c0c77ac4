// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// How the scale of a dynamic policy moves.

// Both are.
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
    %finite = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %other = train.all_finite %h : (tensor<4xf32>) -> tensor<i1>
    %both = mpt.and %finite, %other : tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    train.write @w, %nw if %both : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %both : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %both {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A dynamic policy with a constant.
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
    %c = mpt.constant dense<1024.0> : tensor<f32>
    // expected-error @below {{expected a scale that is read from state, since the policy moves it, got another value}}
    %0 = train.scale_loss %one, %c : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %2 = mpt.mul %0, %y : tensor<4xf32>
    %gw = train.unscale %1, %c : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %gv = train.unscale %2, %c : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %h = train.gradient @v, %gv : tensor<4xf32>
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

// A dynamic policy that never moves its scale.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic"}}} {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  // expected-error @below {{expected one update of s, by which the policy moves it, got 0}}
  func.func @step(%x: tensor<4xf32>, %y: tensor<4xf32>) {
    // expected-error @below {{expected a write of s in the function that updates by it}}
    %s = train.read @s : tensor<f32>
    // expected-error @below {{expected a write of good}}
    %good = train.read @good : tensor<i32>
    // expected-error @below {{expected a write of left}}
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
    %nv = mpt.sub %v, %h : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    return
  }
}

// -----

// A scale that moves by a check of its own.
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
    %mine = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    // expected-error @below {{expected the finite check of the commit, as far as it is about s}}
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %mine {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// Another state's next value.
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
    %nv = mpt.sub %v, %h : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %finite : tensor<i1> : tensor<4xf32>
    // expected-error @below {{expected its results to be the next values of the states that it reads}}
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %nl : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}
