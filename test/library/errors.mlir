// RUN: mpt-opt %s --split-input-file --verify-diagnostics

func.func @one_rank(%a: tensor<2x4x8xf32>, %b: tensor<8x16xf32>) -> tensor<2x4x16xf32> {
  // expected-error @+1 {{C1: expected two matrices of one rank of at least 2, got 'tensor<2x4x8xf32>' and 'tensor<8x16xf32>'}}
  %d = library.gemm %a, %b : tensor<2x4x8xf32>, tensor<8x16xf32> -> tensor<2x4x16xf32>
  return %d : tensor<2x4x16xf32>
}

// -----

func.func @batches(%a: tensor<2x4x8xf32>, %b: tensor<3x8x16xf32>) -> tensor<2x4x16xf32> {
  // expected-error @+1 {{C2: expected equal batch extents, got 'tensor<2x4x8xf32>' and 'tensor<3x8x16xf32>'}}
  %d = library.gemm %a, %b : tensor<2x4x8xf32>, tensor<3x8x16xf32> -> tensor<2x4x16xf32>
  return %d : tensor<2x4x16xf32>
}

// -----

func.func @contracted(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) -> tensor<8x16xf32> {
  // expected-error @+1 {{C3: expected equal contracted extents, got 4 and 8}}
  %d = library.gemm %a, %b {transpose_a = true} : tensor<4x8xf32>, tensor<8x16xf32> -> tensor<8x16xf32>
  return %d : tensor<8x16xf32>
}

// -----

func.func @result(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) -> tensor<16x4xf32> {
  // expected-error @+1 {{C4: expected a result of shape [4, 16], got 'tensor<16x4xf32>'}}
  %d = library.gemm %a, %b : tensor<4x8xf32>, tensor<8x16xf32> -> tensor<16x4xf32>
  return %d : tensor<16x4xf32>
}

// -----

func.func @bias(%a: tensor<4x8xbf16>, %b: tensor<8x16xbf16>, %bias: tensor<16xf32>) -> tensor<4x16xbf16> {
  // expected-error @+1 {{C5: expected bias of type 'tensor<16xbf16>', got 'tensor<16xf32>'}}
  %d = library.gemm %a, %b bias %bias : tensor<16xf32> : tensor<4x8xbf16>, tensor<8x16xbf16> -> tensor<4x16xbf16>
  return %d : tensor<4x16xbf16>
}

// -----

func.func @operand_scales(%a: tensor<4x8xf8E4M3FN>, %b: tensor<8x16xf8E4M3FN>, %s: tensor<f32>) -> tensor<4x16xbf16> {
  // expected-error @+1 {{C6: expected two FP32 scalars as operand scales, got 'tensor<f32>'}}
  %d = library.gemm %a, %b operand_scales %s : tensor<f32> : tensor<4x8xf8E4M3FN>, tensor<8x16xf8E4M3FN> -> tensor<4x16xbf16>
  return %d : tensor<4x16xbf16>
}

// -----

func.func @scale_of_one_element(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>, %s: tensor<1xf32>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C7: expected an FP32 scalar as scale, got 'tensor<1xf32>'}}
  %d = library.gemm %a, %b scale %s : tensor<1xf32> : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}

// -----

func.func @scale_and_bias(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>, %s: tensor<f32>, %bias: tensor<16xf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C7: expected no epilogue, bias or operand scales beside a scale, got epilogue #library.epilogue}}
  %d = library.gemm %a, %b bias %bias : tensor<16xf16> scale %s : tensor<f32> : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}

// -----

func.func @gradient_without_aux(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C8: expected aux with epilogue #library.epilogue<activation = gelu_tanh_gradient>, got none}}
  %d = library.gemm %a, %b {epilogue = #library.epilogue<activation = gelu_tanh_gradient>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}

// -----

func.func @aux_without_gradient(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>, %x: tensor<4x16xf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C8: expected no aux with epilogue #library.epilogue<>, got one}}
  %d = library.gemm %a, %b aux %x : tensor<4x16xf16> : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}

// -----

func.func @keep_without_result(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C9: expected kept with epilogue #library.epilogue<activation = gelu_tanh, keep = true>, got none}}
  %d = library.gemm %a, %b {epilogue = #library.epilogue<activation = gelu_tanh, keep = true>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}

// -----

func.func @keep_of_relu(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> (tensor<4x16xf16>, tensor<4x16xf16>) {
  // expected-error @+1 {{C9: expected gelu_tanh where its operand is kept, got #library.epilogue<activation = relu, keep = true>}}
  %d, %k = library.gemm %a, %b {epilogue = #library.epilogue<activation = relu, keep = true>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16> kept tensor<4x16xf16>
  return %d, %k : tensor<4x16xf16>, tensor<4x16xf16>
}

// -----

func.func @sums_of_rows(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> (tensor<4x16xf32>, tensor<16xf32>) {
  // expected-error @+1 {{C10: expected sums of type 'tensor<4xf32>', got 'tensor<16xf32>'}}
  %d, %s = library.gemm %a, %b {epilogue = #library.epilogue<sum = a>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf32> sums tensor<16xf32>
  return %d, %s : tensor<4x16xf32>, tensor<16xf32>
}

// -----

func.func @sums_of_batches(%a: tensor<2x4x8xf16>, %b: tensor<2x8x16xf16>) -> (tensor<2x4x16xf32>, tensor<4xf32>) {
  // expected-error @+1 {{C10: expected matrices without batch dimensions beside sums, got 'tensor<2x4x16xf32>'}}
  %d, %s = library.gemm %a, %b {epilogue = #library.epilogue<sum = a>} : tensor<2x4x8xf16>, tensor<2x8x16xf16> -> tensor<2x4x16xf32> sums tensor<4xf32>
  return %d, %s : tensor<2x4x16xf32>, tensor<4xf32>
}

// -----

func.func @sums_and_activation(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> (tensor<4x16xf16>, tensor<16xf16>) {
  // expected-error @+1 {{C11: expected no bias or activation beside sums of an operand, got #library.epilogue<activation = relu, sum = b>}}
  %d, %s = library.gemm %a, %b {epilogue = #library.epilogue<activation = relu, sum = b>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16> sums tensor<16xf16>
  return %d, %s : tensor<4x16xf16>, tensor<16xf16>
}

// -----

func.func @sums_of_result(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> (tensor<4x16xf16>, tensor<16xf16>) {
  // expected-error @+1 {{C11: expected the gradient of an activation beside sums of the result, got #library.epilogue<sum = d>}}
  %d, %s = library.gemm %a, %b {epilogue = #library.epilogue<sum = d>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16> sums tensor<16xf16>
  return %d, %s : tensor<4x16xf16>, tensor<16xf16>
}

// -----

func.func @round_without_bias(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C12: expected a bias where the sum is rounded before it}}
  %d = library.gemm %a, %b {epilogue = #library.epilogue<round = true>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}

// -----

func.func @gradient_and_bias(%a: tensor<4x8xf16>, %b: tensor<8x16xf16>, %x: tensor<4x16xf16>, %bias: tensor<16xf16>) -> tensor<4x16xf16> {
  // expected-error @+1 {{C12: expected no bias before the gradient of an activation}}
  %d = library.gemm %a, %b bias %bias : tensor<16xf16> aux %x : tensor<4x16xf16> {epilogue = #library.epilogue<activation = gelu_tanh_gradient>} : tensor<4x8xf16>, tensor<8x16xf16> -> tensor<4x16xf16>
  return %d : tensor<4x16xf16>
}
