// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// Which roundings a policy may ask for, and of which values.

policy.policy @good storage = bf16 compute = bf16 accumulate = f32 master = bf16 gradients = bf16 slots = bf16 {
  policy.rounding "nearest_even"
  policy.rounding "compensated" of masters overflow "saturate"
  policy.rounding "stochastic" of slots
}

// -----

policy.policy @unknown storage = bf16 compute = bf16 accumulate = f32 master = bf16 gradients = bf16 {
  // expected-error @below {{expected "nearest_even", "stochastic" or "compensated", got "up"}}
  policy.rounding "up" of masters
}

// -----

policy.policy @slots storage = bf16 compute = bf16 accumulate = f32 master = bf16 gradients = bf16 {
  // expected-error @below {{expected "compensated" of masters that are the storage type, got it of slots}}
  policy.rounding "compensated" of slots
}

// -----

policy.policy @wide storage = bf16 compute = bf16 accumulate = f32 master = f32 gradients = bf16 {
  // expected-error @below {{expected "compensated" of masters that are the storage type, got it of masters, which are f32}}
  policy.rounding "compensated" of masters
}

// -----

policy.policy @codes storage = bf16 compute = bf16 accumulate = f32 master = f32 gradients = bf16 slots = i8 {
}

// -----

// expected-error @below {{C4: expected f32, f16, bf16, i8 or f8E4M3FN for slots, got 'f8E5M2'}}
policy.policy @range storage = bf16 compute = bf16 accumulate = f32 master = f32 gradients = bf16 slots = f8E5M2 {
}
