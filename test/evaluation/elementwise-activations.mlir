// RUN: mpt-run %s
// Activations, complements and tests against NumPy and SciPy in float64, rounded once.

func.func @gelu() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.gelu %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.015524163, -0.15426877, 0.0, 0.18537344, 1.9544997, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @gelu_tanh() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.gelu %x0 {form = #mpt<gelu_form tanh>} : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.015084266, -0.154286, 0.0, 0.18537094, 1.9545977, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @swish() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.swish %x0 {alpha = 1.5 : f64} : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.057443425, -0.16041066, 0.0, 0.18319178, 1.9051483, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @elu() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.elu %x0 {alpha = 0.5 : f64} : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.4589575, -0.19673467, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @leaky_relu() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.leaky_relu %x0 {alpha = 0.1 : f64} : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.25, -0.05, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @hard_sigmoid() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.hard_sigmoid %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[0.0, 0.4, 0.5, 0.56, 0.9, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @clamp() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.clamp %x0 {low = -1.0 : f64, high = 1.0 : f64} : tensor<6xf32>
  %e0 = mpt.constant dense<[-1.0, -0.5, 0.0, 0.3, 1.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @clamp_integers() {
  %x0 = mpt.constant dense<[-9223372036854775808, 9007199254740993, 9223372036854775807]> : tensor<3xi64>
  %y0 = mpt.clamp %x0 {low = 0.0 : f64, high = 0x7FF0000000000000 : f64} : tensor<3xi64>
  %e0 = mpt.constant dense<[0, 9007199254740993, 9223372036854775807]> : tensor<3xi64>
  check.equal %y0, %e0 : tensor<3xi64>
  return
}

func.func @not() {
  %x0 = mpt.constant dense<[true, false]> : tensor<2xi1>
  %y0 = mpt.not %x0 : tensor<2xi1>
  %e0 = mpt.constant dense<[false, true]> : tensor<2xi1>
  check.equal %y0, %e0 : tensor<2xi1>
  return
}

func.func @not_int() {
  %x0 = mpt.constant dense<[5, -1]> : tensor<2xi32>
  %y0 = mpt.not %x0 : tensor<2xi32>
  %e0 = mpt.constant dense<[-6, 0]> : tensor<2xi32>
  check.equal %y0, %e0 : tensor<2xi32>
  return
}

func.func @neg_int() {
  %x0 = mpt.constant dense<[5, -1]> : tensor<2xi32>
  %y0 = mpt.neg %x0 : tensor<2xi32>
  %e0 = mpt.constant dense<[-5, 1]> : tensor<2xi32>
  check.equal %y0, %e0 : tensor<2xi32>
  return
}

func.func @is_nan() {
  %x0 = mpt.constant dense<[0x7FC00000, 0x7F800000, 0xFF800000, 1.0]> : tensor<4xf32>
  %y0 = mpt.is_nan %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[true, false, false, false]> : tensor<4xi1>
  check.equal %y0, %e0 : tensor<4xi1>
  return
}

func.func @is_inf() {
  %x0 = mpt.constant dense<[0x7FC00000, 0x7F800000, 0xFF800000, 1.0]> : tensor<4xf32>
  %y0 = mpt.is_inf %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[false, true, true, false]> : tensor<4xi1>
  check.equal %y0, %e0 : tensor<4xi1>
  return
}

func.func @is_finite() {
  %x0 = mpt.constant dense<[0x7FC00000, 0x7F800000, 0xFF800000, 1.0]> : tensor<4xf32>
  %y0 = mpt.is_finite %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[false, false, false, true]> : tensor<4xi1>
  check.equal %y0, %e0 : tensor<4xi1>
  return
}
