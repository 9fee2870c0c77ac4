// RUN: mpt-opt %s --split-input-file --precision-verify --verify-diagnostics
// Parameters whose roundings leave a remainder: it is read, written with the rest, and skipped with its parameter.

#policy = {name = "k", storage = bf16, compute = bf16, gradients = f32, accumulate = f32, master = bf16, masters_compensated}
module attributes {mpt.policy = #policy} {
  train.state parameter @w : tensor<4xbf16> = dense<1.0> : tensor<4xbf16>
  train.state slot @w.remainder : tensor<4xbf16> of "w"
  func.func @right(%x: tensor<4xf32>) attributes {mpt.lossy_casts = 2} {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w : tensor<4xbf16>
    %wide = mpt.cast %w : tensor<4xbf16> to tensor<4xf32>
    %kept = train.read @w.remainder : tensor<4xbf16>
    %rest = mpt.cast %kept : tensor<4xbf16> to tensor<4xf32>
    %old = mpt.add %wide, %rest : tensor<4xf32>
    %new = mpt.sub %old, %g : tensor<4xf32>
    %narrow = mpt.cast %new : tensor<4xf32> to tensor<4xbf16>
    train.write @w, %narrow : tensor<4xbf16>
    %back = mpt.cast %narrow : tensor<4xbf16> to tensor<4xf32>
    %left = mpt.sub %new, %back : tensor<4xf32>
    %next = mpt.cast %left : tensor<4xf32> to tensor<4xbf16>
    train.write @w.remainder, %next : tensor<4xbf16>
    return
  }
}

// -----

#policy = {name = "k", storage = bf16, compute = bf16, gradients = f32, accumulate = f32, master = bf16, masters_compensated}
module attributes {mpt.policy = #policy} {
  // expected-error @below {{expected a state w.remainder, which a compensated parameter needs, got none}}
  train.state parameter @w : tensor<4xbf16> = dense<1.0> : tensor<4xbf16>
  func.func @without(%x: tensor<4xf32>) attributes {mpt.lossy_casts = 1} {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w : tensor<4xbf16>
    %wide = mpt.cast %w : tensor<4xbf16> to tensor<4xf32>
    %new = mpt.sub %wide, %g : tensor<4xf32>
    %narrow = mpt.cast %new : tensor<4xf32> to tensor<4xbf16>
    train.write @w, %narrow : tensor<4xbf16>
    return
  }
}

// -----

#policy = {name = "k", storage = bf16, compute = bf16, gradients = f32, accumulate = f32, master = bf16, masters_compensated}
module attributes {mpt.policy = #policy} {
  train.state parameter @w : tensor<4xbf16> = dense<1.0> : tensor<4xbf16>
  train.state slot @w.remainder : tensor<4xbf16> of "w"
  func.func @unread(%x: tensor<4xf32>) attributes {mpt.lossy_casts = 2} {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w : tensor<4xbf16>
    %wide = mpt.cast %w : tensor<4xbf16> to tensor<4xf32>
    %new = mpt.sub %wide, %g : tensor<4xf32>
    %narrow = mpt.cast %new : tensor<4xf32> to tensor<4xbf16>
    // expected-error @below {{expected an update of w that starts from w.remainder too, got one without it}}
    train.write @w, %narrow : tensor<4xbf16>
    %back = mpt.cast %narrow : tensor<4xbf16> to tensor<4xf32>
    %left = mpt.sub %new, %back : tensor<4xf32>
    %next = mpt.cast %left : tensor<4xf32> to tensor<4xbf16>
    train.write @w.remainder, %next : tensor<4xbf16>
    return
  }
}

// -----

// The rest is of the gradient's difference, not of the new value.
#policy = {name = "k", storage = bf16, compute = bf16, gradients = f32, accumulate = f32, master = bf16, masters_compensated}
module attributes {mpt.policy = #policy} {
  train.state parameter @w : tensor<4xbf16> = dense<1.0> : tensor<4xbf16>
  train.state slot @w.remainder : tensor<4xbf16> of "w"
  func.func @other_rest(%x: tensor<4xf32>) attributes {mpt.lossy_casts = 2} {
    %g = train.gradient @w, %x : tensor<4xf32>
    %w = train.read @w : tensor<4xbf16>
    %wide = mpt.cast %w : tensor<4xbf16> to tensor<4xf32>
    %kept = train.read @w.remainder : tensor<4xbf16>
    %rest = mpt.cast %kept : tensor<4xbf16> to tensor<4xf32>
    %old = mpt.add %wide, %rest : tensor<4xf32>
    %new = mpt.sub %old, %g : tensor<4xf32>
    %narrow = mpt.cast %new : tensor<4xf32> to tensor<4xbf16>
    // expected-error @below {{expected w.remainder to get what the rounding of w leaves out, under the same condition}}
    train.write @w, %narrow : tensor<4xbf16>
    %back = mpt.cast %narrow : tensor<4xbf16> to tensor<4xf32>
    %left = mpt.sub %old, %back : tensor<4xf32>
    %next = mpt.cast %left : tensor<4xf32> to tensor<4xbf16>
    train.write @w.remainder, %next : tensor<4xbf16>
    return
  }
}

// -----

// Narrow optimizer state that is no remainder.
#policy = {name = "k", storage = bf16, compute = bf16, gradients = f32, accumulate = f32, master = bf16, masters_compensated}
module attributes {mpt.policy = #policy} {
  // expected-error @below {{expected f32 for state of role slot, got 'bf16'}}
  train.state slot @w.other : tensor<4xbf16> of "w"
}
