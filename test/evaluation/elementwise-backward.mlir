// RUN: mpt-run %s
// Gradient ops, comparison and selection against NumPy in float64, rounded once.

func.func @relu_backward() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.relu_backward %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[1.5, -2.0, 0.1, 0.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @tanh_backward() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.tanh_backward %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[1.125, 30.0, 0.096, 0.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @sigmoid_backward() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.sigmoid_backward %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[0.375, 24.0, 0.016, -6.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @gelu_backward() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.gelu_backward %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[1.3012427, -2.0010073, 0.06574683, -0.24994642]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @gelu_tanh_backward() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.gelu_backward %x0, %x1 {form = #mpt<gelu_form tanh>} : tensor<4xf32>
  %e0 = mpt.constant dense<[1.3010548, -2.0006702, 0.065745816, -0.24889225]> : tensor<4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<4xf32>
  return
}

func.func @compare_eq() {
  %x0 = mpt.constant dense<[1.0, 2.0, 0x7FC00000]> : tensor<3xf32>
  %x1 = mpt.constant dense<[1.0, 3.0, 0x7FC00000]> : tensor<3xf32>
  %y0 = mpt.compare eq %x0, %x1 : tensor<3xf32>
  %e0 = mpt.constant dense<[true, false, false]> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

func.func @compare_ne() {
  %x0 = mpt.constant dense<[1.0, 2.0, 0x7FC00000]> : tensor<3xf32>
  %x1 = mpt.constant dense<[1.0, 3.0, 0x7FC00000]> : tensor<3xf32>
  %y0 = mpt.compare ne %x0, %x1 : tensor<3xf32>
  %e0 = mpt.constant dense<[false, true, true]> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

func.func @compare_lt() {
  %x0 = mpt.constant dense<[1.0, 2.0, 0x7FC00000]> : tensor<3xf32>
  %x1 = mpt.constant dense<[1.0, 3.0, 0x7FC00000]> : tensor<3xf32>
  %y0 = mpt.compare lt %x0, %x1 : tensor<3xf32>
  %e0 = mpt.constant dense<[false, true, false]> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

func.func @compare_le() {
  %x0 = mpt.constant dense<[1.0, 2.0, 0x7FC00000]> : tensor<3xf32>
  %x1 = mpt.constant dense<[1.0, 3.0, 0x7FC00000]> : tensor<3xf32>
  %y0 = mpt.compare le %x0, %x1 : tensor<3xf32>
  %e0 = mpt.constant dense<[true, true, false]> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

func.func @compare_gt() {
  %x0 = mpt.constant dense<[1.0, 2.0, 0x7FC00000]> : tensor<3xf32>
  %x1 = mpt.constant dense<[1.0, 3.0, 0x7FC00000]> : tensor<3xf32>
  %y0 = mpt.compare gt %x0, %x1 : tensor<3xf32>
  %e0 = mpt.constant dense<false> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

func.func @compare_ge() {
  %x0 = mpt.constant dense<[1.0, 2.0, 0x7FC00000]> : tensor<3xf32>
  %x1 = mpt.constant dense<[1.0, 3.0, 0x7FC00000]> : tensor<3xf32>
  %y0 = mpt.compare ge %x0, %x1 : tensor<3xf32>
  %e0 = mpt.constant dense<[true, false, false]> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

func.func @select() {
  %x0 = mpt.constant dense<[true, false, true, false]> : tensor<4xi1>
  %x1 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x2 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.select %x0, %x1, %x2 : tensor<4xi1>, tensor<4xf32>
  %e0 = mpt.constant dense<[1.5, 4.0, 0.1, -1.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}
