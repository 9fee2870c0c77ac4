// RUN: mpt-run %s
// Expected values from NumPy (float64, rounded once to the type).

func.func @arithmetic() {
  %a = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %b = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %add = mpt.add %a, %b : tensor<4xf32>
  %add_e = mpt.constant dense<[2.0, 2.0, 0.300000012, 2.0]> : tensor<4xf32>
  check.equal %add, %add_e : tensor<4xf32>
  %mul = mpt.mul %a, %b : tensor<4xf32>
  %mul_e = mpt.constant dense<[0.75, -8.0, 0.02, -3.0]> : tensor<4xf32>
  check.ulp_close %mul, %mul_e {ulps = 1 : i64} : tensor<4xf32>
  return
}
