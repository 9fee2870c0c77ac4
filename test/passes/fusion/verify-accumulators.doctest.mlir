// RUN: mpt-opt %s --fusion-verify-accumulators --verify-diagnostics
func.func @scatter(%x: tensor<4x8xbf16>, %i: tensor<64x8xi64>, %u: tensor<64x8xbf16>) -> tensor<4x8xbf16> {
  %y = mpt.fusion(%x, %i, %u) : (tensor<4x8xbf16>, tensor<64x8xi64>, tensor<64x8xbf16>) -> tensor<4x8xbf16> {
  ^bb0(%a: tensor<4x8xbf16>, %b: tensor<64x8xi64>, %c: tensor<64x8xbf16>):
    // expected-error@+1 {{expected a result of 'f32', in which its kernel adds up, got 'bf16': run fusion-decompose}}
    %s = mpt.scatter_elements %a, %b, %c {axis = 0 : i64, kind = #mpt<scatter_kind add>} : (tensor<4x8xbf16>, tensor<64x8xi64>, tensor<64x8xbf16>) -> tensor<4x8xbf16>
    mpt.yield %s : tensor<4x8xbf16>
  }
  return %y : tensor<4x8xbf16>
}
