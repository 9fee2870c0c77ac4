// RUN: mpt-opt %s --split-input-file --verify-diagnostics --training-join-sizes | FileCheck %s

// A module without sizes stays as it is.
// CHECK-LABEL: module @one
// CHECK-NOT: mpt.manifest
// CHECK: func.func @predict
module @one {
  func.func @predict(%x: tensor<2xf32>) -> tensor<2xf32> {
    return %x : tensor<2xf32>
  }
}

// -----

// Attributes and entries of the manifest are the first size's. A constant that hangs on the size is one a size, and so is each op that
// reads it; one that is the same is shared. Private functions are renamed with their callers.
// CHECK: module attributes {mpt.manifest = {form = "T", sizes = ["N=2", "N=3"]}, mpt.name = "model"}
// CHECK: train.state{{ +}}constant @rows : tensor<2xf32>
// CHECK: train.state{{ +}}constant @table : tensor<4xf32>
// CHECK: func.func @predict(
// CHECK: train.read @rows
// CHECK: train.read @table
// CHECK: call @helper(
// CHECK: func.func private @helper(
// CHECK: train.state{{ +}}constant @"rows[N=3]" : tensor<3xf32>
// CHECK-NOT: train.state
// CHECK: func.func @"predict[N=3]"(
// CHECK: train.read @"rows[N=3]"
// CHECK: train.read @table
// CHECK: call @"helper[N=3]"(
// CHECK: func.func private @"helper[N=3]"(
module {
  module @"N=2" attributes {mpt.manifest = {form = "T"}, mpt.name = "model"} {
    train.state constant @rows : tensor<2xf32> = dense<1.0> : tensor<2xf32>
    train.state constant @table : tensor<4xf32> = dense<1.0> : tensor<4xf32>
    func.func @predict(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<4xf32>) {
      %r = train.read @rows : tensor<2xf32>
      %t = train.read @table : tensor<4xf32>
      %y = mpt.add %x, %r : tensor<2xf32>
      %z = func.call @helper(%y) : (tensor<2xf32>) -> tensor<2xf32>
      return %z, %t : tensor<2xf32>, tensor<4xf32>
    }
    func.func private @helper(%x: tensor<2xf32>) -> tensor<2xf32> {
      return %x : tensor<2xf32>
    }
  }
  module @"N=3" attributes {mpt.name = "model"} {
    train.state constant @rows : tensor<3xf32> = dense<1.0> : tensor<3xf32>
    train.state constant @table : tensor<4xf32> = dense<1.0> : tensor<4xf32>
    func.func @predict(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<4xf32>) {
      %r = train.read @rows : tensor<3xf32>
      %t = train.read @table : tensor<4xf32>
      %y = mpt.add %x, %r : tensor<3xf32>
      %z = func.call @helper(%y) : (tensor<3xf32>) -> tensor<3xf32>
      return %z, %t : tensor<3xf32>, tensor<4xf32>
    }
    func.func private @helper(%x: tensor<3xf32>) -> tensor<3xf32> {
      return %x : tensor<3xf32>
    }
  }
}

// -----

// A function that does not hang on the size is there once, and constants of other values are told apart.
// CHECK: sizes = ["N=2", "N=3"]
// CHECK: train.state{{ +}}constant @c : tensor<2xf32> = dense<1.0
// CHECK: func.func @initialize(
// CHECK: func.func @predict(
// CHECK: train.state{{ +}}constant @"c[N=3]" : tensor<2xf32> = dense<2.0
// CHECK-NOT: @"initialize
// CHECK: func.func @"predict[N=3]"(
// CHECK: train.read @"c[N=3]"
module {
  module @"N=2" {
    train.state constant @c : tensor<2xf32> = dense<1.0> : tensor<2xf32>
    func.func @initialize() {
      return
    }
    func.func @predict(%x: tensor<2xf32>) -> tensor<2xf32> {
      %c = train.read @c : tensor<2xf32>
      return %c : tensor<2xf32>
    }
  }
  module @"N=3" {
    train.state constant @c : tensor<2xf32> = dense<2.0> : tensor<2xf32>
    func.func @initialize() {
      return
    }
    func.func @predict(%x: tensor<3xf32>) -> tensor<2xf32> {
      %c = train.read @c : tensor<2xf32>
      return %c : tensor<2xf32>
    }
  }
}

// -----

module {
  module @"N=2" {
    train.state parameter @w : tensor<2xf32> = dense<1.0> : tensor<2xf32>
    func.func @predict(%x: tensor<2xf32>) {
      return
    }
  }
  module @"N=3" {
    // expected-error @+1 {{expected state 'w' of the same type in all sizes, got 'tensor<2xf32>' and, for 'N=3', 'tensor<3xf32>'}}
    train.state parameter @w : tensor<3xf32> = dense<1.0> : tensor<3xf32>
    func.func @predict(%x: tensor<3xf32>) {
      return
    }
  }
}

// -----

module {
  module @"N=2" {
    func.func @predict(%x: tensor<2xf32>) {
      return
    }
  }
  // expected-error @+1 {{expected a size that changes an input, got the inputs of 'N=2' or another size again for 'M=3'}}
  module @"M=3" {
    func.func @predict(%x: tensor<2xf32>) {
      return
    }
  }
}

// -----

module {
  module @"N=2" {
    func.func @predict(%x: tensor<2xf32>) -> tensor<2xf32> {
      return %x : tensor<2xf32>
    }
  }
  module @"N=3" {
    // expected-error @+1 {{expected inputs of @predict that tell the sizes apart, got the same ones for 'N=3' as for another size, and other operations on them}}
    func.func @predict(%x: tensor<2xf32>) -> tensor<2xf32> {
      %y = mpt.add %x, %x : tensor<2xf32>
      return %y : tensor<2xf32>
    }
  }
}

// -----

module {
  // expected-error @+1 {{expected a module a size with the size as its name, got one without a name}}
  module {
  }
}
