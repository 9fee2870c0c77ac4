// RUN: mpt-run %s
// One update of each optimizer against the formulas in NumPy float64.

func.func @sgd() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<1> : tensor<i64>
  %y0 = mpt.sgd %x0, %x1, %x2, %x3 : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>) -> tensor<3xf32>
  %e0 = mpt.constant dense<[2.5375, 2.0625, 0.2875]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 1 : i64} : tensor<3xf32>
  return
}

func.func @sgd_first() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<1> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.sgd %x0, %x1, %x2, %x3, %x4 {momentum = 0.9 : f64, dampening = 0.5 : f64, weight_decay = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.534875, 2.06025, 0.28725]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.90125, 1.8975, -0.3725]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 2 : i64} : tensor<3xf32>
  return
}

func.func @sgd_momentum() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.sgd %x0, %x1, %x2, %x3, %x4 {momentum = 0.9 : f64, dampening = 0.5 : f64, weight_decay = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.4899375, 2.312625, 0.212375]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[1.350625, -0.62625, 0.37625]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 2 : i64} : tensor<3xf32>
  return
}

func.func @sgd_nesterov() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %y0, %y1 = mpt.sgd %x0, %x1, %x2, %x3, %x4 {momentum = 0.9 : f64, nesterov = true} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.37775, 2.0355, 0.270625]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[1.775, 0.3, 0.1875]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 2 : i64} : tensor<3xf32>
  return
}

func.func @adam() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %x5 = mpt.constant dense<[1.75, 2.0, 1.75]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.adam %x0, %x1, %x2, %x3, %x4, %x5 {weight_decay = 0.01 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.6098762, 2.2697794, 0.24197544]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.990125, -1.38525, 0.52525]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 2 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[1.7490623, 2.0016005, 1.7483888]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 2 : i64} : tensor<3xf32>
  return
}

func.func @adamw() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.0, -1.75, 0.625]> : tensor<3xf32>
  %x5 = mpt.constant dense<[1.75, 2.0, 1.75]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.adam %x0, %x1, %x2, %x3, %x4, %x5 {weight_decay = 0.01 : f64, decoupled = true} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.607291, 2.267562, 0.24172926]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[0.9875, -1.3875, 0.525]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 2 : i64} : tensor<3xf32>
  %e2 = mpt.constant dense<[1.7490156, 2.0015156, 1.7483907]> : tensor<3xf32>
  check.ulp_close %y2, %e2 {ulps = 2 : i64} : tensor<3xf32>
  return
}

func.func @adagrad() {
  %x0 = mpt.constant dense<[2.625, 2.25, 0.25]> : tensor<3xf32>
  %x1 = mpt.constant dense<[0.875, 1.875, -0.375]> : tensor<3xf32>
  %x2 = mpt.constant dense<0.1> : tensor<f32>
  %x3 = mpt.constant dense<3> : tensor<i64>
  %x4 = mpt.constant dense<[1.75, 2.0, 1.75]> : tensor<3xf32>
  %y0, %y1 = mpt.adagrad %x0, %x1, %x2, %x3, %x4 {lr_decay = 0.5 : f64} : (tensor<3xf32>, tensor<3xf32>, tensor<f32>, tensor<i64>, tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[2.5974162, 2.2100816, 0.26363635]> : tensor<3xf32>
  check.ulp_close %y0, %e0 {ulps = 2 : i64} : tensor<3xf32>
  %e1 = mpt.constant dense<[2.515625, 5.515625, 1.890625]> : tensor<3xf32>
  check.ulp_close %y1, %e1 {ulps = 2 : i64} : tensor<3xf32>
  return
}
