// RUN: mpt-run %s
// Binary ops, comparison and selection against NumPy in float64, rounded once.

func.func @add() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.add %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[2.0, 2.0, 0.3, 2.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @sub() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.sub %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[1.0, -6.0, -0.1, 4.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @mul() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.mul %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[0.75, -8.0, 0.020000001, -3.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @div() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.div %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[3.0, -0.5, 0.5, -3.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @mod() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.mod %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[0.0, -2.0, 0.1, 0.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @max() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.max %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[1.5, 4.0, 0.2, 3.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @min() {
  %x0 = mpt.constant dense<[1.5, -2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.min %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[0.5, -2.0, 0.1, -1.0]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 0 : i64} : tensor<4xf32>
  return
}

func.func @pow() {
  %x0 = mpt.constant dense<[1.5, 2.0, 0.1, 3.0]> : tensor<4xf32>
  %x1 = mpt.constant dense<[0.5, 4.0, 0.2, -1.0]> : tensor<4xf32>
  %y0 = mpt.pow %x0, %x1 : tensor<4xf32>
  %e0 = mpt.constant dense<[1.2247449, 16.0, 0.63095737, 0.33333334]> : tensor<4xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<4xf32>
  return
}

func.func @max_nan() {
  %x0 = mpt.constant dense<[0x7FC00000, 1.0]> : tensor<2xf32>
  %x1 = mpt.constant dense<[1.0, 0x7FC00000]> : tensor<2xf32>
  %y0 = mpt.max %x0, %x1 : tensor<2xf32>
  %e0 = mpt.constant dense<[0x7FC00000, 0x7FC00000]> : tensor<2xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<2xf32>
  return
}

func.func @min_nan() {
  %x0 = mpt.constant dense<[0x7FC00000, 1.0]> : tensor<2xf32>
  %x1 = mpt.constant dense<[1.0, 0x7FC00000]> : tensor<2xf32>
  %y0 = mpt.min %x0, %x1 : tensor<2xf32>
  %e0 = mpt.constant dense<[0x7FC00000, 0x7FC00000]> : tensor<2xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<2xf32>
  return
}

func.func @add_wraps() {
  %x0 = mpt.constant dense<[7, -7, 2147483647]> : tensor<3xi32>
  %x1 = mpt.constant dense<[2, 2, 1]> : tensor<3xi32>
  %y0 = mpt.add %x0, %x1 : tensor<3xi32>
  %e0 = mpt.constant dense<[9, -5, -2147483648]> : tensor<3xi32>
  check.equal %y0, %e0 : tensor<3xi32>
  return
}

func.func @div_int() {
  %x0 = mpt.constant dense<[7, -7, 2147483647]> : tensor<3xi32>
  %x1 = mpt.constant dense<[2, 2, 1]> : tensor<3xi32>
  %y0 = mpt.div %x0, %x1 : tensor<3xi32>
  %e0 = mpt.constant dense<[3, -3, 2147483647]> : tensor<3xi32>
  check.equal %y0, %e0 : tensor<3xi32>
  return
}

func.func @divide_always() {
  %a = mpt.constant dense<[7, -7, 0, -2147483648]> : tensor<4xi32>
  %b = mpt.constant dense<[0, 0, 0, -1]> : tensor<4xi32>
  %quotient = mpt.div %a, %b : tensor<4xi32>
  %equotient = mpt.constant dense<[0, 0, 0, -2147483648]> : tensor<4xi32>
  check.equal %quotient, %equotient : tensor<4xi32>
  %rest = mpt.mod %a, %b : tensor<4xi32>
  %zero = mpt.constant dense<0> : tensor<4xi32>
  check.equal %rest, %zero : tensor<4xi32>
  return
}

func.func @mod_int() {
  %x0 = mpt.constant dense<[7, -7, 2147483647]> : tensor<3xi32>
  %x1 = mpt.constant dense<[2, 2, 1]> : tensor<3xi32>
  %y0 = mpt.mod %x0, %x1 : tensor<3xi32>
  %e0 = mpt.constant dense<[1, -1, 0]> : tensor<3xi32>
  check.equal %y0, %e0 : tensor<3xi32>
  return
}

func.func @and() {
  %x0 = mpt.constant dense<[7, -7, 2147483647]> : tensor<3xi32>
  %x1 = mpt.constant dense<[2, 2, 1]> : tensor<3xi32>
  %y0 = mpt.and %x0, %x1 : tensor<3xi32>
  %e0 = mpt.constant dense<[2, 0, 1]> : tensor<3xi32>
  check.equal %y0, %e0 : tensor<3xi32>
  return
}

func.func @or() {
  %x0 = mpt.constant dense<[7, -7, 2147483647]> : tensor<3xi32>
  %x1 = mpt.constant dense<[2, 2, 1]> : tensor<3xi32>
  %y0 = mpt.or %x0, %x1 : tensor<3xi32>
  %e0 = mpt.constant dense<[7, -5, 2147483647]> : tensor<3xi32>
  check.equal %y0, %e0 : tensor<3xi32>
  return
}

func.func @xor() {
  %x0 = mpt.constant dense<[7, -7, 2147483647]> : tensor<3xi32>
  %x1 = mpt.constant dense<[2, 2, 1]> : tensor<3xi32>
  %y0 = mpt.xor %x0, %x1 : tensor<3xi32>
  %e0 = mpt.constant dense<[5, -5, 2147483646]> : tensor<3xi32>
  check.equal %y0, %e0 : tensor<3xi32>
  return
}

func.func @and_bool() {
  %x0 = mpt.constant dense<[true, true, false]> : tensor<3xi1>
  %x1 = mpt.constant dense<[true, false, false]> : tensor<3xi1>
  %y0 = mpt.and %x0, %x1 : tensor<3xi1>
  %e0 = mpt.constant dense<[true, false, false]> : tensor<3xi1>
  check.equal %y0, %e0 : tensor<3xi1>
  return
}

// 2^64 - 1 is the largest number of its type, not -1.
func.func @unsigned() {
  %a = mpt.constant dense<[18446744073709551615, 7]> : tensor<2xui64>
  %b = mpt.constant dense<2> : tensor<2xui64>
  %less = mpt.compare lt %a, %b : tensor<2xui64>
  %eless = mpt.constant dense<false> : tensor<2xi1>
  check.equal %less, %eless : tensor<2xi1>
  %max = mpt.max %a, %b : tensor<2xui64>
  check.equal %max, %a : tensor<2xui64>
  %div = mpt.div %a, %b : tensor<2xui64>
  %ediv = mpt.constant dense<[9223372036854775807, 3]> : tensor<2xui64>
  check.equal %div, %ediv : tensor<2xui64>
  %none = mpt.sub %a, %a : tensor<2xui64>
  %by0 = mpt.div %a, %none : tensor<2xui64>
  check.equal %by0, %none : tensor<2xui64>
  %real = mpt.cast %a : tensor<2xui64> to tensor<2xf64>
  %ereal = mpt.constant dense<[1.8446744073709551616e19, 7.0]> : tensor<2xf64>
  check.equal %real, %ereal : tensor<2xf64>
  %top = mpt.reduce max %a {axes = array<i64: 0>} : (tensor<2xui64>) -> tensor<ui64>
  %etop = mpt.constant dense<18446744073709551615> : tensor<ui64>
  check.equal %top, %etop : tensor<ui64>
  return
}

// Integers that FP64 does not hold round once.
func.func @cast_long_integers() {
  %x = mpt.constant dense<[1152921573326323713, -1152921573326323713]> : tensor<2xi64>
  %y = mpt.cast %x : tensor<2xi64> to tensor<2xf32>
  %e = mpt.constant dense<[1152921642045800448.0, -1152921642045800448.0]> : tensor<2xf32>
  check.ulp_close %y, %e {ulps = 0 : i64} : tensor<2xf32>
  return
}
