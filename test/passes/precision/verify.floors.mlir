// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// Floors under a dynamic scale, and random bits of micro-steps.

// As it should be.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic", hysteresis = 2 : i64, patience = 16 : i64, floor_steps = array<i64: 0>, floors = array<f64: 1024.0>}}} {
  train.state parameter @w : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  train.state scale @steps : tensor<i32>
  func.func @step(%x: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %steps = train.read @steps : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %finite = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 2 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    %fs = train.floor_scale %ns, %s, %steps, %nl {floor_steps = array<i64: 0>, floors = array<f64: 1024.0>, hysteresis = 2 : i64, patience = 16 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
    %c1 = mpt.constant dense<1> : tensor<i32>
    %next = mpt.add %steps, %c1 : tensor<i32>
    train.write @steps, %next : tensor<i32>
    train.write @s, %fs : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// The floor lies under the scale of this step.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic", hysteresis = 2 : i64, patience = 16 : i64, floor_steps = array<i64: 0>, floors = array<f64: 1024.0>}}} {
  train.state parameter @w : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  train.state scale @steps : tensor<i32>
  func.func @step(%x: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %steps = train.read @steps : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %finite = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 2 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    // expected-error @below {{expected the next scale, the scale and the hysteresis of one update, in this order}}
    %fs = train.floor_scale %s, %ns, %steps, %nl {floor_steps = array<i64: 0>, floors = array<f64: 1024.0>, hysteresis = 2 : i64, patience = 16 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
    %c1 = mpt.constant dense<1> : tensor<i32>
    %next = mpt.add %steps, %c1 : tensor<i32>
    train.write @steps, %next : tensor<i32>
    train.write @s, %fs : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// It counts by the hysteresis of before.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic", hysteresis = 2 : i64, patience = 16 : i64, floor_steps = array<i64: 0>, floors = array<f64: 1024.0>}}} {
  train.state parameter @w : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  train.state scale @steps : tensor<i32>
  func.func @step(%x: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %steps = train.read @steps : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %finite = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 2 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    // expected-error @below {{expected the next scale, the scale and the hysteresis of one update, in this order}}
    %fs = train.floor_scale %ns, %s, %steps, %left {floor_steps = array<i64: 0>, floors = array<f64: 1024.0>, hysteresis = 2 : i64, patience = 16 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
    %c1 = mpt.constant dense<1> : tensor<i32>
    %next = mpt.add %steps, %c1 : tensor<i32>
    train.write @steps, %next : tensor<i32>
    train.write @s, %fs : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// Another patience.
module attributes {mpt.policy = {loss_scaling = {mode = "dynamic", hysteresis = 2 : i64, patience = 16 : i64, floor_steps = array<i64: 0>, floors = array<f64: 1024.0>}}} {
  train.state parameter @w : tensor<4xf32>
  train.state scale @s : tensor<f32>
  train.state scale @good : tensor<i32>
  train.state scale @left : tensor<i32>
  train.state scale @steps : tensor<i32>
  func.func @step(%x: tensor<4xf32>) {
    %s = train.read @s : tensor<f32>
    %good = train.read @good : tensor<i32>
    %left = train.read @left : tensor<i32>
    %steps = train.read @steps : tensor<i32>
    %one = mpt.constant dense<1.0> : tensor<4xf32> {mpt.seed}
    %0 = train.scale_loss %one, %s : tensor<4xf32>, tensor<f32>
    %1 = mpt.mul %0, %x : tensor<4xf32>
    %gw = train.unscale %1, %s : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    %g = train.gradient @w, %gw : tensor<4xf32>
    %finite = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %w = train.read @w : tensor<4xf32>
    %nw = mpt.sub %w, %g : tensor<4xf32>
    train.write @w, %nw if %finite : tensor<i1> : tensor<4xf32>
    %ns, %ng, %nl = train.update_scale %s, %good, %left, %finite {growth = 2.0 : f64, backoff = 0.5 : f64, interval = 2000 : i64, hysteresis = 2 : i64, min = 6.103515625e-05 : f64, max = 16777216.0 : f64} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
    // expected-error @below {{expected the policy's floors, hysteresis and patience}}
    %fs = train.floor_scale %ns, %s, %steps, %nl {floor_steps = array<i64: 0>, floors = array<f64: 1024.0>, hysteresis = 2 : i64, patience = 17 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
    %c1 = mpt.constant dense<1> : tensor<i32>
    %next = mpt.add %steps, %c1 : tensor<i32>
    train.write @steps, %next : tensor<i32>
    train.write @s, %fs : tensor<f32>
    train.write @good, %ng : tensor<i32>
    train.write @left, %nl : tensor<i32>
    return
  }
}

// -----

// A micro-step that rounds by the same random bits as the next one.
module {
  train.state parameter @w : tensor<4xf16>
  train.state accumulator @w.accumulator : tensor<4xf32> of "w"
  train.state rng @mpt.rounding : tensor<2xi64>
  func.func @accumulate(%x: tensor<4xf32>) {
    // expected-error @below {{expected a write of mpt.rounding in the function that updates by it}}
    %bits = train.read @mpt.rounding : tensor<2xi64>
    %narrow = mpt.cast %x key %bits : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 7 : i64} : tensor<4xf32> to tensor<4xf16>
    %wide = mpt.cast %narrow : tensor<4xf16> to tensor<4xf32>
    %g = train.gradient @w, %wide : tensor<4xf32>
    %sum = train.read @w.accumulator : tensor<4xf32>
    %next = mpt.add %sum, %g : tensor<4xf32>
    train.write @w.accumulator, %next : tensor<4xf32>
    return
  }
}
