// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// Values that updates start from: masters, optimizer state, sums over micro-steps; and roundings that are missing.

module {
  train.state parameter @w : tensor<4xf16> {from = "w.master"}
  train.state master @w.master : tensor<4xf32> of "w" = dense<1.0> : tensor<4xf32>
  func.func @right(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w.master : tensor<4xf32>
    %0 = mpt.sub %w, %g : tensor<4xf32>
    train.write @w.master, %0 : tensor<4xf32>
    %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xf16>
    train.write @w, %1 : tensor<4xf16>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf16> {from = "w.master"}
  train.state master @w.master : tensor<4xf32> of "w" = dense<1.0> : tensor<4xf32>
  func.func @narrow_copy(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w : tensor<4xf16>
    %wide = mpt.cast %w : tensor<4xf16> to tensor<4xf32>
    %0 = mpt.sub %wide, %g : tensor<4xf32>
    // expected-error @below {{expected an update of the master w.master, got one that reads the narrow copy w beside it}}
    train.write @w.master, %0 : tensor<4xf32>
    %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xf16>
    train.write @w, %1 : tensor<4xf16>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf16> {from = "w.master"}
  train.state master @w.master : tensor<4xf32> of "w" = dense<1.0> : tensor<4xf32>
  func.func @copies(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w.master : tensor<4xf32>
    %0 = mpt.sub %w, %g : tensor<4xf32>
    train.write @w.master, %0 : tensor<4xf32>
    %1 = mpt.cast %w : tensor<4xf32> to tensor<4xf16>
    // expected-error @below {{expected the new master of w, rounded by one cast, under the master's condition}}
    train.write @w, %1 : tensor<4xf16>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf16> {from = "w.master"}
  train.state master @w.master : tensor<4xf32> of "w" = dense<1.0> : tensor<4xf32>
  func.func @forgotten(%x: tensor<4xf32>) {
    // expected-error @below {{expected a write of w, which this is the gradient of}}
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w.master : tensor<4xf32>
    %0 = mpt.sub %w, %g : tensor<4xf32>
    train.write @w.master, %0 : tensor<4xf32>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf32>
  train.state parameter @v : tensor<4xf32>
  train.state slot @w.m : tensor<4xf32> of "w"
  train.state slot @v.m : tensor<4xf32> of "v"
  func.func @slots(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w : tensor<4xf32>
    // expected-error @below {{expected a write of v.m in the function that updates by it}}
    %m = train.read @v.m : tensor<4xf32>
    %0 = mpt.add %m, %g : tensor<4xf32>
    // expected-error @below {{expected slot w.m to be made of itself, got one made of v.m}}
    train.write @w.m, %0 : tensor<4xf32>
    %1 = mpt.sub %w, %0 : tensor<4xf32>
    train.write @w, %1 : tensor<4xf32>
    // expected-error @below {{expected one write of w a function, got another}}
    train.write @w, %1 : tensor<4xf32>
    return
  }
}

// -----

module {
  train.state parameter @w : tensor<4xf32>
  train.state accumulator @w.sum : tensor<4xf32> of "w"
  func.func @accumulate(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    // expected-error @below {{expected w.sum plus the gradient of w}}
    train.write @w.sum, %g : tensor<4xf32>
    return
  }
  func.func @step(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    %old = train.read @w.sum : tensor<4xf32>
    %sum = mpt.add %old, %g : tensor<4xf32>
    %w = train.read @w : tensor<4xf32>
    %1 = mpt.sub %w, %sum : tensor<4xf32>
    train.write @w, %1 : tensor<4xf32>
    // expected-error @below {{expected w.sum to be read and emptied by the step that updates}}
    train.write @w.sum, %sum : tensor<4xf32>
    return
  }
}

// -----

// One cast is elided, another one added: the number is right.
module {
  func.func @instead(%x: tensor<4xf32>, %y: tensor<4xf16>) -> tensor<4xf32> attributes {mpt.lossy_casts = 1 : i64} {
    %0 = mpt.cast %x : tensor<4xf32> to tensor<4xf16>
    %1 = mpt.cast %0 : tensor<4xf16> to tensor<4xf32>
    // expected-error @below {{expected 'f16' for operand 0, as was decided, got 'f32': a cast is missing}}
    %2 = mpt.relu %1 {mpt.precision = #mpt.precision<operands = [f16], results = [f16], rule = "by hand">} : tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}

// -----

module attributes {mpt.policy = {storage = f16}} {
  // expected-error @below {{expected the number of its rounding casts (mpt.lossy_casts), got none: run precision-insert-casts}}
  func.func @uncounted(%x: tensor<4xf16>) -> tensor<4xf32> {
    %0 = mpt.cast %x : tensor<4xf16> to tensor<4xf32>
    %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xf16>
    return %0 : tensor<4xf32>
  }
}

// -----

// This micro-step's gradient is checked, the ones that the sum already has are not.
module attributes {mpt.policy = {loss_scaling = {mode = "fixed", init = 1.0}}} {
  train.state parameter @w : tensor<4xf32>
  train.state accumulator @w.sum : tensor<4xf32> of "w"
  func.func @step(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    %finite = train.all_finite %g : (tensor<4xf32>) -> tensor<i1>
    %old = train.read @w.sum : tensor<4xf32>
    %sum = mpt.add %old, %g : tensor<4xf32>
    %w = train.read @w : tensor<4xf32>
    %1 = mpt.sub %w, %sum : tensor<4xf32>
    // expected-error @below {{expected a condition that holds only where w.sum is finite: add the sum to train.all_finite}}
    train.write @w, %1 if %finite : tensor<i1> : tensor<4xf32>
    %zero = mpt.constant dense<0.0> : tensor<4xf32>
    train.write @w.sum, %zero : tensor<4xf32>
    return
  }
}
