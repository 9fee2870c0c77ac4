// SPDX-License-Identifier: Apache-2.0
// RUN: mpt-opt %s -split-input-file -verify-diagnostics
// Rules on activations that wait for the backward pass: of nodes alone, in 8 bits or in their own type.

policy.policy @p storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  policy.saved ".*" -> narrow
  // expected-error@+1 {{C1: expected narrow or storage, got wide}}
  policy.saved "/blocks/.*" -> wide
}

// -----

policy.policy @p storage = f16 compute = f16 accumulate = f32 master = f32 gradients = f16 {
  // expected-error@+1 {{expected a regular expression, got "(": parentheses not balanced}}
  policy.saved "(" -> narrow
}
