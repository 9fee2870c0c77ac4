// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// What a finite check may decide about.

policy.policy @good storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  policy.loss_scaling adaptive {check = "parameter"}
}

// -----

policy.policy @unknown storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  // expected-error @below {{C5: expected check "step", or "parameter" in a mode that skips steps, got "layer" in mode dynamic}}
  policy.loss_scaling dynamic {check = "layer"}
}

// -----

policy.policy @nothing storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  // expected-error @below {{C5: expected check "step", or "parameter" in a mode that skips steps, got "parameter" in mode none}}
  policy.loss_scaling none {check = "parameter"}
}
