// RUN: mpt-opt %s --fusion-verify-accumulators --split-input-file --verify-diagnostics

// Without a policy, sums of narrow values are FP32 where nothing is stated.
func.func @by_default(%x: tensor<4096xbf16>) -> tensor<bf16> {
  %y = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<4096xbf16>) -> tensor<bf16>
  return %y : tensor<bf16>
}

// -----

module attributes {mpt.policy = {accumulate = f32}} {
  // Largest magnitudes are exact in any type.
  func.func @extremum(%x: tensor<4096xbf16>) -> tensor<bf16> {
    %y = mpt.reduce max %x {axes = array<i64: 0>} : (tensor<4096xbf16>) -> tensor<bf16>
    return %y : tensor<bf16>
  }
  func.func @unstated(%x: tensor<4096xbf16>) -> tensor<bf16> {
    // expected-error@+1 {{expected an accumulator type for 'bf16' inputs: run precision-widen-reductions}}
    %y = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<4096xbf16>) -> tensor<bf16>
    return %y : tensor<bf16>
  }
  func.func @fused(%x: tensor<8x8xf16>) -> tensor<8x8xf16> {
    %y = mpt.fusion(%x) : (tensor<8x8xf16>) -> tensor<8x8xf16> {
    ^bb0(%a: tensor<8x8xf16>):
      // expected-error@+2 {{expected an accumulator of at least 'f32', got 'f16'}}
      // expected-error@+1 {{expected a result of 'f32', in which its kernel adds up, got 'f16': run fusion-decompose}}
      %s = mpt.cum_sum %a {axis = 0 : i64, numerics = #mpt.numerics<in = f16, acc = f16, out = f16>} : (tensor<8x8xf16>) -> tensor<8x8xf16>
      mpt.yield %s : tensor<8x8xf16>
    }
    return %y : tensor<8x8xf16>
  }
}

// -----

// Partial sums that are rounded before they are added up.
func.func @partial(%x: tensor<64x64xbf16>) -> tensor<64xf32> {
  // expected-error@+1 {{expected sums that are delivered in 'f32', got a rounding to 'bf16'}}
  %y = mpt.reduce sum %x {axes = array<i64: 0>, numerics = #mpt.numerics<in = bf16, acc = f32, out = bf16>} : (tensor<64x64xbf16>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}

// -----

// A scatter's kernel adds up in the memory of the result. One that assigns adds nothing up.
func.func @in_memory(%x: tensor<4x8xbf16>, %i: tensor<64x8xi64>, %u: tensor<64x8xbf16>) -> (tensor<4x8xbf16>, tensor<4x8xbf16>) {
  %y = mpt.fusion(%x, %i, %u) : (tensor<4x8xbf16>, tensor<64x8xi64>, tensor<64x8xbf16>) -> tensor<4x8xbf16> {
  ^bb0(%a: tensor<4x8xbf16>, %b: tensor<64x8xi64>, %c: tensor<64x8xbf16>):
    // expected-error@+1 {{expected a result of 'f32', in which its kernel adds up, got 'bf16': run fusion-decompose}}
    %s = mpt.scatter_elements %a, %b, %c {axis = 0 : i64, kind = #mpt<scatter_kind add>} : (tensor<4x8xbf16>, tensor<64x8xi64>, tensor<64x8xbf16>) -> tensor<4x8xbf16>
    mpt.yield %s : tensor<4x8xbf16>
  }
  %z = mpt.fusion(%x, %i, %u) : (tensor<4x8xbf16>, tensor<64x8xi64>, tensor<64x8xbf16>) -> tensor<4x8xbf16> {
  ^bb0(%a: tensor<4x8xbf16>, %b: tensor<64x8xi64>, %c: tensor<64x8xbf16>):
    %s = mpt.scatter_elements %a, %b, %c {axis = 0 : i64} : (tensor<4x8xbf16>, tensor<64x8xi64>, tensor<64x8xbf16>) -> tensor<4x8xbf16>
    mpt.yield %s : tensor<4x8xbf16>
  }
  return %y, %z : tensor<4x8xbf16>, tensor<4x8xbf16>
}

// -----

func.func @runtime(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  // expected-error@+1 {{expected an accumulator of 'f32', which runtimes have, got 'f64': widen the operands}}
  %y = mpt.matmul %a, %a {numerics = #mpt.numerics<in = f32, acc = f64, out = f32>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
