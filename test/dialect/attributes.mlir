// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// Discardable attributes of the mpt and train dialects: the ones that their ODS declares, in their kinds, where they belong.

module attributes {mpt.name = "m", mpt.optimizer = {kind = "sgd"}} {
  func.func private @kernel(memref<4xf32> {mpt.name = "x"}, memref<4xf32> {mpt.name = "y", mpt.output})
    attributes {mpt.kernel, mpt.grid = array<i64: 1, 1, 1>, mpt.in_place = array<i64>}
  func.func @forward(%x: tensor<4xf32> {mpt.name = "x", mpt.default = 1.0 : f64}) -> (tensor<4xf32> {mpt.weight = 2.0 : f64}) {
    %y = mpt.relu %x {mpt.loss} : tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

// expected-error @below {{expected a discardable attribute that the mpt dialect declares for operations, got 'mpt.nam'}}
module attributes {mpt.nam = "m"} {}

// -----

// expected-error @below {{expected another kind of attribute as 'mpt.name', got 1 : i64}}
module attributes {mpt.name = 1 : i64} {}

// -----

// expected-error @below {{expected a discardable attribute that the mpt dialect declares for arguments, got 'mpt.weight_decay'}}
func.func private @f(tensor<f32> {mpt.weight_decay = 1.0 : f64})

// -----

// expected-error @below {{expected another kind of attribute as 'mpt.output', got true}}
func.func private @f(memref<4xf32> {mpt.output = true})

// -----

// expected-error @below {{expected a discardable attribute that the mpt dialect declares for results, got 'mpt.output'}}
func.func private @f() -> (tensor<f32> {mpt.output})

// -----

// expected-error @below {{expected a discardable attribute that the train dialect declares for operations, got 'train.scales'}}
module attributes {train.scales} {}

// -----

// expected-error @below {{expected another kind of attribute as 'train.scale', got true}}
module attributes {train.scale = true} {}

// -----

// expected-error @below {{expected another kind of attribute as 'train.part', got "backward"}}
module attributes {train.part = "backward"} {}

// -----

// expected-error @below {{expected ::mpt::TrainingPart to be one of: forward, backward, update}}
// expected-error @below {{failed to parse Train_PartAttr parameter}}
module attributes {train.part = #train<part sideways>} {}

// -----

// expected-error @below {{expected a discardable attribute that the train dialect declares for results, got 'train.part'}}
func.func private @f() -> (tensor<f32> {train.part = #train<part update>})

// -----

// expected-error @below {{expected another kind of attribute as 'train.role', got "loss"}}
func.func private @f(tensor<f32> {train.role = "loss"})

// -----

// expected-error @below {{expected a role of states, got 'loss'}}
train.state loss @x : tensor<f32>

// -----

// expected-error @below {{expected a float type or unit, got i32}}
module attributes {mpt.precision = #mpt.precision<operands = [f16, unit], results = [i32], rule = "rule">} {}
