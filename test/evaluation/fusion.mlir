// RUN: mpt-run %s
// A fusion means its body, roundings included: 1 + 2^-9 is 1 in f16's sum with 1.

func.func @rounds_inside() {
  %x = mpt.constant dense<[1.0, 2048.0]> : tensor<2xf16>
  %y = mpt.fusion(%x) : (tensor<2xf16>) -> tensor<2xf16> {
  ^bb0(%a: tensor<2xf16>):
    %one = mpt.constant dense<1.0> : tensor<2xf16>
    %b = mpt.add %a, %one : tensor<2xf16>
    %c = mpt.sub %b, %a : tensor<2xf16>
    mpt.yield %c : tensor<2xf16>
  }
  %e = mpt.constant dense<[1.0, 0.0]> : tensor<2xf16>
  check.equal %y, %e : tensor<2xf16>
  return
}
