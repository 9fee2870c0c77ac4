// RUN: mpt-opt %s --memory-assign-destinations | FileCheck %s
// RUN: mpt-opt %s --memory-assign-destinations --debug-only=memory-assign-destinations 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

train.state parameter @w : tensor<3x4xf32>
train.state parameter @v : tensor<12xf32>

// A result that becomes a state and an output is written to the state.
// CHECK-LABEL: func.func @state_first
// CHECK: train.write {{.*}}library.placed = array<i64: 0>
// CHECK: return %{{.*}} : tensor<3x4xf32>
func.func @state_first(%x: tensor<2x3xf32>, %d: tensor<2x4xf32>) -> tensor<3x4xf32> {
  %g = library.gemm %x, %d {transpose_a = true} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<3x4xf32>
  train.write @w, %g : tensor<3x4xf32>
  return %g : tensor<3x4xf32>
}

// A later reader of the old value.
// CHECK-LABEL: func.func @late_reader
// CHECK: train.write @w, %{{[0-9a-z]+}} : tensor
// WHY: memory-assign-destinations: {{.*}}: not written in place for train.write: expected the old value to be read before, got a later reader
func.func @late_reader(%x: tensor<2x3xf32>, %d: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %w = train.read @w : tensor<3x4xf32>
  %g = library.gemm %x, %d {transpose_a = true} : tensor<2x3xf32>, tensor<2x4xf32> -> tensor<3x4xf32>
  train.write @w, %g : tensor<3x4xf32>
  %y = library.gemm %x, %w : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  return %y : tensor<2x4xf32>
}

// A later reader of the old value through a fusion that only repeats it: that shows the state's own memory.
// CHECK-LABEL: func.func @late_reader_of_repeated
// CHECK: train.write @w, %{{[0-9a-z]+}} : tensor
func.func @late_reader_of_repeated(%x: tensor<2x2x3xf32>) -> tensor<2x2x4xf32> {
  %w = train.read @w : tensor<3x4xf32>
  %b = mpt.fusion(%w) : (tensor<3x4xf32>) -> tensor<2x3x4xf32> {
  ^bb0(%p: tensor<3x4xf32>):
    %s = mpt.broadcast %p {dims = array<i64: 1, 2>} : (tensor<3x4xf32>) -> tensor<2x3x4xf32>
    mpt.yield %s : tensor<2x3x4xf32>
  }
  %n = mpt.fusion(%w) : (tensor<3x4xf32>) -> tensor<3x4xf32> {
  ^bb0(%p: tensor<3x4xf32>):
    %s = mpt.neg %p : tensor<3x4xf32>
    mpt.yield %s : tensor<3x4xf32>
  }
  train.write @w, %n : tensor<3x4xf32>
  %y = library.gemm %x, %b : tensor<2x2x3xf32>, tensor<2x3x4xf32> -> tensor<2x2x4xf32>
  return %y : tensor<2x2x4xf32>
}

// A library call may not write over its operands; a kernel may, if bufferization finds that it does so index by index.
// CHECK-LABEL: func.func @call
// CHECK: train.write @w, %{{[0-9a-z]+}} : tensor
// WHY: memory-assign-destinations: {{.*}}: not written in place for train.write: expected a kernel where the op itself reads the old value, got a library call
func.func @call(%a: tensor<3x3xf32>) {
  %w = train.read @w : tensor<3x4xf32>
  %g = library.gemm %a, %w : tensor<3x3xf32>, tensor<3x4xf32> -> tensor<3x4xf32>
  train.write @w, %g : tensor<3x4xf32>
  return
}
// CHECK-LABEL: func.func @kernel
// CHECK: train.write {{.*}}library.placed = array<i64: 0>
func.func @kernel() {
  %w = train.read @w : tensor<3x4xf32>
  %n = mpt.fusion(%w) : (tensor<3x4xf32>) -> tensor<3x4xf32> {
  ^bb0(%p: tensor<3x4xf32>):
    %s = mpt.neg %p : tensor<3x4xf32>
    mpt.yield %s : tensor<3x4xf32>
  }
  train.write @w, %n : tensor<3x4xf32>
  return
}

// Parts of a concatenation are written where the whole lies, but for an argument, which is there already.
// The whole itself is an output, but no state: its parts are written before the old value was read.
// CHECK-LABEL: func.func @concat
// CHECK: mpt.concat %{{.*}}, %{{.*}}, %{{.*}} {axis = 0 : i64, library.placed = array<i64: 0, 1>}
// CHECK: return {library.placed = array<i64: 0>}
func.func @concat(%x: tensor<2x3xf32>, %a: tensor<3x4xf32>, %o: tensor<2x4xf32>) -> tensor<6x4xf32> {
  %l = library.gemm %x, %a : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  %m = library.gemm %x, %a : tensor<2x3xf32>, tensor<3x4xf32> -> tensor<2x4xf32>
  %y = mpt.concat %l, %m, %o {axis = 0 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<6x4xf32>
  return %y : tensor<6x4xf32>
}
// CHECK-LABEL: func.func @concat_state
// CHECK: train.write @v, %{{[0-9a-z]+}} : tensor
// WHY: memory-assign-destinations: {{.*}}: not written in place for train.write: expected an op that writes when it runs, got one whose parts are written before
func.func @concat_state(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  %c = mpt.concat %x, %y {axis = 0 : i64} : (tensor<4xf32>, tensor<8xf32>) -> tensor<12xf32>
  train.write @v, %c : tensor<12xf32>
  return
}

// No strides show columns of a matrix as one run.
// CHECK-LABEL: func.func @strides
// CHECK: mpt.concat %{{.*}}, %{{.*}} {axis = 1 : i64} :
// WHY: memory-assign-destinations: {{.*}}: not written in place for mpt.concat: expected a layout that strides can show, got another one
func.func @strides(%x: tensor<1x3xf32>, %a: tensor<3x8xf32>, %o: tensor<2x3xf32>) -> tensor<2x7xf32> {
  %g = library.gemm %x, %a : tensor<1x3xf32>, tensor<3x8xf32> -> tensor<1x8xf32>
  %m = mpt.reshape %g : (tensor<1x8xf32>) -> tensor<2x4xf32>
  %c = mpt.concat %m, %o {axis = 1 : i64} : (tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<2x7xf32>
  return %c : tensor<2x7xf32>
}

// Views of inputs have no maker.
// CHECK-LABEL: func.func @input
// CHECK: return %{{[0-9a-z]+}} : tensor
func.func @input(%x: tensor<2x3xf32>) -> tensor<6xf32> {
  %r = mpt.reshape %x : (tensor<2x3xf32>) -> tensor<6xf32>
  return %r : tensor<6xf32>
}

// The sum lies in the accumulator until the function ends and empties it.
// CHECK-LABEL: func.func @lent
// CHECK: mpt.fusion
// CHECK-SAME: library.lent = [@w]
func.func @lent(%g: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %zero = mpt.constant dense<0.0> : tensor<3x4xf32>
  %w = train.read @w : tensor<3x4xf32>
  %sum = mpt.fusion(%w, %g) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32> {
  ^bb0(%p: tensor<3x4xf32>, %q: tensor<3x4xf32>):
    %s = mpt.add %p, %q : tensor<3x4xf32>
    mpt.yield %s : tensor<3x4xf32>
  }
  train.write @w, %zero : tensor<3x4xf32>
  %m = library.gemm %g, %sum {transpose_b = true} : tensor<3x4xf32>, tensor<3x4xf32> -> tensor<3x3xf32>
  %n = library.gemm %m, %g : tensor<3x3xf32>, tensor<3x4xf32> -> tensor<3x4xf32>
  return %n : tensor<3x4xf32>
}

// Not where the old value is read behind the sum, nor where the state keeps a value that is computed.
// CHECK-LABEL: func.func @not_lent
// CHECK-NOT: library.lent
// WHY: memory-assign-destinations: {{.*}}: not written in @w: expected the old value to be read before, got a later reader
func.func @not_lent(%g: tensor<3x4xf32>, %c: tensor<12xf32>) -> (tensor<3x3xf32>, tensor<3x3xf32>, tensor<12xf32>) {
  %zero = mpt.constant dense<0.0> : tensor<3x4xf32>
  %w = train.read @w : tensor<3x4xf32>
  %v = train.read @v : tensor<12xf32>
  %sum = mpt.fusion(%w, %g) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32> {
  ^bb0(%p: tensor<3x4xf32>, %q: tensor<3x4xf32>):
    %s = mpt.add %p, %q : tensor<3x4xf32>
    mpt.yield %s : tensor<3x4xf32>
  }
  %other = mpt.fusion(%v, %c) : (tensor<12xf32>, tensor<12xf32>) -> tensor<12xf32> {
  ^bb0(%p: tensor<12xf32>, %q: tensor<12xf32>):
    %s = mpt.add %p, %q : tensor<12xf32>
    mpt.yield %s : tensor<12xf32>
  }
  train.write @w, %zero : tensor<3x4xf32>
  train.write @v, %c : tensor<12xf32>
  %m = library.gemm %w, %g {transpose_b = true} : tensor<3x4xf32>, tensor<3x4xf32> -> tensor<3x3xf32>
  %n = library.gemm %sum, %g {transpose_b = true} : tensor<3x4xf32>, tensor<3x4xf32> -> tensor<3x3xf32>
  return %m, %n, %other : tensor<3x3xf32>, tensor<3x3xf32>, tensor<12xf32>
}
