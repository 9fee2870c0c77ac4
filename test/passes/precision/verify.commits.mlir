// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// Values that a step may commit, and under which condition.

// Right: every later case breaks one thing of it.
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
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A commit under a constant.
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
    %yes = mpt.constant dense<true> : tensor<i1>
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
    // expected-error @below {{expected a condition that holds only where the gradient of w is finite}}
    train.write @w, %nw if %yes : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %yes : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A check of some gradients only.
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
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    // expected-error @below {{expected a condition that holds only where the gradient of v is finite}}
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

// Where one of two checks is enough.
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
    %either = mpt.or %finite, %other : tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    // expected-error @below {{expected a condition that holds only where the gradient of w is finite}}
    train.write @w, %nw if %either : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %either : tensor<i1> : tensor<4xf32>
    // expected-error @below {{expected the finite check of the commit, as far as it is about s}}
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %either {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A commit that never happens.
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
    %not = mpt.not %finite : tensor<i1>
    %never = mpt.and %not, %finite : tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %v = train.read @v : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    %nv = mpt.sub %v, %h : tensor<4xf32>
    // expected-error @below {{expected a condition that a finite step meets, got one that never holds}}
    train.write @w, %nw if %never : tensor<i1> : tensor<4xf32>
    train.write @v, %nv if %never : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 1 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    train.write @s, %ns : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}
