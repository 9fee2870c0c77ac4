// RUN: mpt-opt %s --split-input-file --library-verify-updates --verify-diagnostics

train.state parameter @a : tensor<64xf32>
train.state parameter @b : tensor<64xf32>

// Updates that wait for the same op stand behind one another, in any order; views between them take no time.
func.func @together(%x: tensor<64xf32>) {
  %a = train.read @a : tensor<64xf32>
  %b = train.read @b : tensor<64xf32>
  %g = mpt.neg %x : tensor<64xf32>
  %v = mpt.reshape %g : (tensor<64xf32>) -> tensor<64xf32>
  %m = mpt.fusion(%a, %g) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%p: tensor<64xf32>, %q: tensor<64xf32>):
    %s = mpt.sub %p, %q : tensor<64xf32>
    mpt.yield %s : tensor<64xf32>
  }
  %n = mpt.fusion(%b, %v) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%p: tensor<64xf32>, %q: tensor<64xf32>):
    %s = mpt.sub %p, %q : tensor<64xf32>
    mpt.yield %s : tensor<64xf32>
  }
  train.write @a, %m : tensor<64xf32>
  train.write @b, %n : tensor<64xf32>
  return
}

// -----

train.state parameter @a : tensor<64xf32>

// The finite check of a second gradient comes first: the update waits for it.
func.func @waits(%x: tensor<64xf32>, %y: tensor<64xf32>) {
  %a = train.read @a : tensor<64xf32>
  %g = mpt.neg %x : tensor<64xf32>
  %h = mpt.neg %y : tensor<64xf32>
  %r = mpt.reduce max %h {axes = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
  %ok = mpt.is_finite %r : tensor<f32>
  %n = mpt.fusion(%a, %g, %ok) : (tensor<64xf32>, tensor<64xf32>, tensor<i1>) -> tensor<64xf32> {
  ^bb0(%p: tensor<64xf32>, %q: tensor<64xf32>, %c: tensor<i1>):
    %s = mpt.sub %p, %q : tensor<64xf32>
    %f = mpt.broadcast %c {dims = array<i64>} : (tensor<i1>) -> tensor<64xi1>
    %k = mpt.select %f, %s, %p : tensor<64xi1>, tensor<64xf32>
    mpt.yield %k : tensor<64xf32>
  }
  train.write @a, %n : tensor<64xf32>
  return
}

// -----

train.state accumulator @sum : tensor<64xf32>

// The sum of an accumulator that the function empties is an update as well, and so is one with a small side result.
func.func @sums(%x: tensor<64xf32>, %z: tensor<64xf32>) -> (tensor<64xf32>, tensor<f32>) {
  %zero = mpt.constant dense<0.0> : tensor<64xf32>
  %old = train.read @sum : tensor<64xf32>
  %g = mpt.neg %x : tensor<64xf32> // expected-note {{the update waits for this op}}
  %w = mpt.neg %z : tensor<64xf32>
  // expected-error@+1 {{expected the update of @sum directly behind the last op that it waits for, got mpt.neg between them}}
  %n:2 = mpt.fusion(%old, %g) : (tensor<64xf32>, tensor<64xf32>) -> (tensor<64xf32>, tensor<f32>) {
  ^bb0(%p: tensor<64xf32>, %q: tensor<64xf32>):
    %s = mpt.add %p, %q : tensor<64xf32>
    %m = mpt.reduce max %s {axes = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
    mpt.yield %s, %m : tensor<64xf32>, tensor<f32>
  }
  train.write @sum, %zero : tensor<64xf32>
  %u = mpt.add %n#0, %w : tensor<64xf32>
  return %u, %n#1 : tensor<64xf32>, tensor<f32>
}

// -----

train.state parameter @a : tensor<64xf32>

// What holds the update back is another op than the finite check that it waits for.
func.func @checked(%x: tensor<64xf32>, %z: tensor<64xf32>) -> tensor<64xf32> {
  %a = train.read @a : tensor<64xf32>
  %g = mpt.neg %x : tensor<64xf32> // expected-note {{the update waits for this op}}
  %w = mpt.neg %z : tensor<64xf32>
  %ok = mpt.fusion(%g) : (tensor<64xf32>) -> tensor<i1> {
  ^bb0(%q: tensor<64xf32>):
    %r = mpt.reduce max %q {axes = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
    %f = mpt.is_finite %r : tensor<f32>
    mpt.yield %f : tensor<i1>
  }
  // expected-error@+1 {{expected the update of @a directly behind the last op that it waits for, got mpt.neg between them}}
  %n = mpt.fusion(%a, %g, %ok) : (tensor<64xf32>, tensor<64xf32>, tensor<i1>) -> tensor<64xf32> {
  ^bb0(%p: tensor<64xf32>, %q: tensor<64xf32>, %c: tensor<i1>):
    %f = mpt.broadcast %c {dims = array<i64>} : (tensor<i1>) -> tensor<64xi1>
    %s = mpt.sub %p, %q : tensor<64xf32>
    %k = mpt.select %f, %s, %p : tensor<64xi1>, tensor<64xf32>
    mpt.yield %k : tensor<64xf32>
  }
  train.write @a, %n : tensor<64xf32>
  return %w : tensor<64xf32>
}
