// RUN: mpt-run %s
// Unary ops against NumPy and SciPy in float64, rounded once.

func.func @abs() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.abs %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[2.5, 0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @neg() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.neg %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[2.5, 0.5, -0.0, -0.3, -2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @sign() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.sign %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-1.0, -1.0, 0.0, 1.0, 1.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @floor() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.floor %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-3.0, -1.0, 0.0, 0.0, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @ceil() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.ceil %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-2.0, -0.0, 0.0, 1.0, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @round() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.round %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-2.0, -0.0, 0.0, 0.0, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @relu() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.relu %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[0.0, 0.0, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @exp() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.exp %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[0.082085, 0.60653067, 1.0, 1.3498589, 7.389056, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @sin() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.sin %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.5984721, -0.47942555, 0.0, 0.29552022, 0.9092974, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @cos() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.cos %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.8011436, 0.87758255, 1.0, 0.9553365, -0.41614684, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @tanh() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.tanh %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.9866143, -0.46211717, 0.0, 0.29131263, 0.9640276, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @sigmoid() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.sigmoid %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[0.07585818, 0.37754068, 0.5, 0.5744425, 0.8807971, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @erf() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.erf %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[-0.999593, -0.5204999, 0.0, 0.32862678, 0.9953223, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @softplus() {
  %x0 = mpt.constant dense<[-2.5, -0.5, 0.0, 0.3, 2.0, 0x7FC00000]> : tensor<6xf32>
  %y0 = mpt.softplus %x0 : tensor<6xf32>
  %e0 = mpt.constant dense<[0.078889735, 0.474077, 0.6931472, 0.8543553, 2.126928, 0x7FC00000]> : tensor<6xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<6xf32>
  return
}

func.func @log() {
  %x0 = mpt.constant dense<[0.25, 1.0, 3.0, 0x7F800000]> : tensor<4xf32>
  %y0 = mpt.log %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[-1.3862944, 0.0, 1.0986123, 0x7F800000]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @sqrt() {
  %x0 = mpt.constant dense<[0.25, 1.0, 3.0, 0x7F800000]> : tensor<4xf32>
  %y0 = mpt.sqrt %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[0.5, 1.0, 1.7320508, 0x7F800000]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @rsqrt() {
  %x0 = mpt.constant dense<[0.25, 1.0, 3.0, 0x7F800000]> : tensor<4xf32>
  %y0 = mpt.rsqrt %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[2.0, 1.0, 0.57735026, 0.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @reciprocal() {
  %x0 = mpt.constant dense<[0.25, 1.0, 3.0, 0x7F800000]> : tensor<4xf32>
  %y0 = mpt.reciprocal %x0 : tensor<4xf32>
  %e0 = mpt.constant dense<[4.0, 1.0, 0.33333334, 0.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}
