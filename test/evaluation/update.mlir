// RUN: mpt-run %s
// One update of each further optimizer against the formulas in NumPy float64.

func.func @momentum_first() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<0> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.momentum %x0, %x1, %x2, %x3, %x4 {alpha = 0.9 : f64, beta = 0.8 : f64, nesterov = false, norm_coefficient = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.4448750019073486, 2.217750072479248, 0.23100000619888306]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 4 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[1.8012499809265137, 0.32249999046325684, 0.1899999976158142]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 4 : i64} : tensor<3xf32>
  return
}

func.func @momentum_later() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<2> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, 1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.momentum %x0, %x1, %x2, %x3, %x4 {alpha = 0.9 : f64, beta = 0.8 : f64, nesterov = false, norm_coefficient = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.462899923324585, 1.9407000541687012, 0.2235500067472458]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 4 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[1.621000051498413, 3.0929999351501465, 0.2644999921321869]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 4 : i64} : tensor<3xf32>
  return
}

func.func @momentum_nesterov() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<2> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, 1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.momentum %x0, %x1, %x2, %x3, %x4 {alpha = 0.9 : f64, beta = 0.8 : f64, nesterov = true, norm_coefficient = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.3889849185943604, 1.7818800210952759, 0.2634449899196625]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 4 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[1.621000051498413, 3.0929999351501465, 0.2644999921321869]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 4 : i64} : tensor<3xf32>
  return
}

func.func @adam_hat_uncorrected() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<0> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %x5 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.adam_hat %x0, %x1, %x2, %x3, %x4, %x5 {beta1 = 0.8 : f64, beta2 = 0.95 : f64, epsilon = 0.001 : f64, norm_coefficient = 0.02 : f64, norm_coefficient_post = 0.01 : f64, late_decay = 0.03 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.45599102973938, 2.3749847412109375, 0.216329887509346]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 8 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.9854999780654907, -1.0160000324249268, 0.4259999990463257]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 8 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[0.5180128216743469, 0.4218200147151947, 1.906844973564148]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 8 : i64} : tensor<3xf32>
  return
}

func.func @adam_hat() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %x5 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.adam_hat %x0, %x1, %x2, %x3, %x4, %x5 {beta1 = 0.8 : f64, beta2 = 0.95 : f64, epsilon = 0.001 : f64, norm_coefficient = 0.02 : f64, norm_coefficient_post = 0.01 : f64, late_decay = 0.03 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.4865076541900635, 2.340125799179077, 0.223209947347641]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 8 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.9854999780654907, -1.0160000324249268, 0.4259999990463257]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 8 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[0.5180128216743469, 0.4218200147151947, 1.906844973564148]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 8 : i64} : tensor<3xf32>
  return
}

func.func @rmsprop() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %y0, %y1 = mpt.rmsprop %x0, %x1, %x2, %x3 {alpha = 0.9 : f64, weight_decay = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.5013465881347656, 2.0019237995147705, 0.2776581048965454]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 4 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.5312251448631287, 0.585050642490387, 1.813875675201416]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 4 : i64} : tensor<3xf32>
  return
}

func.func @rmsprop_centered() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<[0.5, 0.25, 2.0]> : tensor<3xf32>
  %x4 = mpt.constant dense<[0.5, -0.10000000149011612, 0.25]> : tensor<3xf32>
  %x5 = mpt.constant dense<[0.25, -0.5, 1.0]> : tensor<3xf32>
  %y0, %y1, %y2, %y3 = mpt.rmsprop %x0, %x1, %x2, %x3, %x4, %x5 {alpha = 0.9 : f64, momentum = 0.8 : f64, centered = true} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.4255127906799316, 2.041006326675415, 0.19811607897281647]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 8 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.526562511920929, 0.5765625238418579, 1.814062476158142]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 8 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[0.5375000238418579, 0.09749999642372131, 0.1875]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 8 : i64} : tensor<3xf32>
  %e3 = mpt.constant dense<[1.994871735572815, 2.0899360179901123, 0.5188392400741577]> : tensor<3xf32>
  check.ulp_close %y3, %e3 {ulps = 8 : i64} : tensor<3xf32>
  return
}

func.func @lion() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.10000000149011612> : tensor<f32>
  %x3 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.lion %x0, %x1, %x2, %x3 {weight_decay = 0.1 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.4987499713897705, 2.327500104904175, 0.14749999344348907]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 4 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.9987499713897705, -1.7137500047683716, 0.6150000095367432]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 4 : i64} : tensor<3xf32>
  return
}
