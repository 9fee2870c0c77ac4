// RUN: mpt-run %s
// Normalizations and softmax against NumPy in float64; internals are FP32.

func.func @batch_norm() {
  %x0 = mpt.constant dense<[[[2.375, -0.75, -0.5], [1.375, 2.625, -2.5]], [[-2.625, -1.5, -0.375], [-2.125, 0.125, 0.25]]]> : tensor<2x2x3xf32>
  %x1 = mpt.constant dense<[1.5, -0.5]> : tensor<2xf32>
  %x2 = mpt.constant dense<[0.25, 1.0]> : tensor<2xf32>
  %y0, %y1, %y2 = mpt.batch_norm %x0, %x1, %x2 {epsilon = 1.0e-5 : f64} : (tensor<2x2x3xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2x3xf32>, tensor<2xf32>, tensor<2xf32>)
  %e0 = mpt.constant dense<[[[3.1516132, 0.064790644, 0.31173646], [0.60823727, 0.2625643, 1.6798235]], [[-1.7873029, -0.6760468, 0.43520936], [1.5761217, 0.9539103, 0.919343]]]> : tensor<2x2x3xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x2x3xf32>
  %e1 = mpt.constant dense<[-0.5625, -0.041666668]> : tensor<2xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2xf32>
  %e2 = mpt.constant dense<[2.3059895, 3.2690973]> : tensor<2xf32>
  check.close %y2, %e2 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2xf32>
  return
}

func.func @batch_norm_backward() {
  %x0 = mpt.constant dense<[[[2.75, 1.5, -1.5], [1.75, 1.875, 1.125]], [[1.125, -1.125, 1.375], [-2.25, 0.75, 2.625]]]> : tensor<2x2x3xf32>
  %x1 = mpt.constant dense<[[[2.375, -0.75, -0.5], [1.375, 2.625, -2.5]], [[-2.625, -1.5, -0.375], [-2.125, 0.125, 0.25]]]> : tensor<2x2x3xf32>
  %x2 = mpt.constant dense<[1.5, -0.5]> : tensor<2xf32>
  %x3 = mpt.constant dense<[-0.5625, -0.041666668]> : tensor<2xf32>
  %x4 = mpt.constant dense<[2.3059895, 3.2690973]> : tensor<2xf32>
  %y0, %y1, %y2 = mpt.batch_norm_backward %x0, %x1, %x2, %x3, %x4 {epsilon = 1.0e-5 : f64} : (tensor<2x2x3xf32>, tensor<2x2x3xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<2x2x3xf32>, tensor<2xf32>, tensor<2xf32>)
  %e0 = mpt.constant dense<[[[0.6331969, 0.89219767, -2.1906505], [-0.00760984, 0.13919507, -0.3970272]], [[1.4180168, -1.3422382, 0.5894772], [0.5907015, 0.08755634, -0.4128159]]]> : tensor<2x2x3xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x2x3xf32>
  %e1 = mpt.constant dense<[4.4090114, 5.692082]> : tensor<2xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2xf32>
  %e2 = mpt.constant dense<[4.125, 5.875]> : tensor<2xf32>
  check.close %y2, %e2 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2xf32>
  return
}

func.func @layer_norm() {
  %x0 = mpt.constant dense<[[2.875, -1.25, -1.0, 0.75], [-0.625, 1.375, -1.875, -2.0], [-2.75, -0.125, -1.75, -1.25]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2.5625, 1.9375, 2.1875, 0.6875]> : tensor<4xf32>
  %x2 = mpt.constant dense<[-2.375, 1.5, 0.625, 2.5]> : tensor<4xf32>
  %y0, %y1, %y2 = mpt.layer_norm %x0, %x1, %x2 {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[[1.5510623, -0.36904684, -1.1542002, 2.6690536], [-2.079738, 4.5808067, -1.1393704, 1.8821102], [-5.84824, 4.254211, -0.025845032, 2.6590955]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3x4xf32>
  %e1 = mpt.constant dense<[0.34375, -0.78125, -1.46875]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<[0.6052827, 0.7374348, 1.0578815]> : tensor<3xf32>
  check.close %y2, %e2 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3xf32>
  return
}

func.func @layer_norm_backward() {
  %x0 = mpt.constant dense<[[-0.125, -2.0, 0.625, -0.25], [1.0, -0.75, -1.125, -2.25], [2.875, 1.5, -0.25, -1.625]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[[2.875, -1.25, -1.0, 0.75], [-0.625, 1.375, -1.875, -2.0], [-2.75, -0.125, -1.75, -1.25]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2.5625, 1.9375, 2.1875, 0.6875]> : tensor<4xf32>
  %x3 = mpt.constant dense<[0.34375, -0.78125, -1.46875]> : tensor<3xf32>
  %x4 = mpt.constant dense<[0.6052827, 0.7374348, 1.0578815]> : tensor<3xf32>
  %y0, %y1, %y2 = mpt.layer_norm_backward %x0, %x1, %x2, %x3, %x4 {axis = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<4xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<3x4xf32>, tensor<4xf32>, tensor<4xf32>)
  %e0 = mpt.constant dense<[[-0.22517909, -1.5859735, 1.5391049, 0.2720476], [2.3951428, -0.9358624, -1.0782254, -0.3810549], [3.3837903, 3.0344834, -3.3236501, -3.0946236]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3x4xf32>
  %e1 = mpt.constant dense<[-3.9730966, 2.8690605, 0.4734299, 1.5846667]> : tensor<4xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<4xf32>
  %e2 = mpt.constant dense<[3.75, -1.25, -0.75, -4.125]> : tensor<4xf32>
  check.close %y2, %e2 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<4xf32>
  return
}

func.func @rms_norm() {
  %x0 = mpt.constant dense<[[2.875, -1.25, -1.0, 0.75], [-0.625, 1.375, -1.875, -2.0], [-2.75, -0.125, -1.75, -1.25]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2.5625, 1.9375, 2.1875, 0.6875]> : tensor<4xf32>
  %y0, %y1 = mpt.rms_norm %x0, %x1 {axis = 1 : i64, epsilon = 1.0e-5 : f64} : (tensor<3x4xf32>, tensor<4xf32>) -> (tensor<3x4xf32>, tensor<3xf32>)
  %e0 = mpt.constant dense<[[4.365733, -1.4351827, -1.296294, 0.30555502], [-1.0233618, 1.702275, -2.6208048, -0.87859356], [-4.0345054, -0.13865818, -2.1916938, -0.4920129]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3x4xf32>
  %e1 = mpt.constant dense<[0.5925915, 0.63897717, 0.5725241]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3xf32>
  return
}

func.func @rms_norm_backward() {
  %x0 = mpt.constant dense<[[-0.125, -2.0, 0.625, -0.25], [1.0, -0.75, -1.125, -2.25], [2.875, 1.5, -0.25, -1.625]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[[2.875, -1.25, -1.0, 0.75], [-0.625, 1.375, -1.875, -2.0], [-2.75, -0.125, -1.75, -1.25]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2.5625, 1.9375, 2.1875, 0.6875]> : tensor<4xf32>
  %x3 = mpt.constant dense<[0.5925915, 0.63897717, 0.5725241]> : tensor<3xf32>
  %y0, %y1 = mpt.rms_norm_backward %x0, %x1, %x2, %x3 {axis = 1 : i64} : (tensor<3x4xf32>, tensor<3x4xf32>, tensor<4xf32>, tensor<3xf32>) -> (tensor<3x4xf32>, tensor<4xf32>)
  %e0 = mpt.constant dense<[[-0.55278444, -2.1384792, 0.93643415, -0.19653948], [1.8048534, -1.2969575, -1.0700594, -0.45249954], [1.8607739, 1.5567564, -1.8130834, -1.7110342]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<3x4xf32>
  %e1 = mpt.constant dense<[-5.1388416, 0.71518546, 1.227952, 3.9272258]> : tensor<4xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<4xf32>
  return
}

func.func @group_norm() {
  %x0 = mpt.constant dense<[[[0.75, -0.5], [0.875, -2.5], [-1.875, 1.5], [-2.625, 1.125]]]> : tensor<1x4x2xf32>
  %x1 = mpt.constant dense<[-0.4375, -2.9375, 1.6875, 1.3125]> : tensor<4xf32>
  %x2 = mpt.constant dense<[1.875, 2.375, 1.375, 2.125]> : tensor<4xf32>
  %y0, %y1, %y2 = mpt.group_norm %x0, %x1, %x2 {groups = 2 : i64, epsilon = 1.0e-5 : f64} : (tensor<1x4x2xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<1x4x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
  %e0 = mpt.constant dense<[[[1.522126, 1.9254106], [-0.26507425, 7.045901], [0.060842495, 3.2148206], [0.5577455, 3.2834055]]]> : tensor<1x4x2xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x4x2xf32>
  %e1 = mpt.constant dense<[[-0.34375, -0.46875]]> : tensor<1x2xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  %e2 = mpt.constant dense<[[0.7374348, 0.5537849]]> : tensor<1x2xf32>
  check.close %y2, %e2 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  return
}

func.func @group_norm_backward() {
  %x0 = mpt.constant dense<[[[-2.375, 2.625], [2.5, 1.25], [1.875, 1.5], [2.375, 2.375]]]> : tensor<1x4x2xf32>
  %x1 = mpt.constant dense<[[[0.75, -0.5], [0.875, -2.5], [-1.875, 1.5], [-2.625, 1.125]]]> : tensor<1x4x2xf32>
  %x2 = mpt.constant dense<[-0.4375, -2.9375, 1.6875, 1.3125]> : tensor<4xf32>
  %x3 = mpt.constant dense<[[-0.34375, -0.46875]]> : tensor<1x2xf32>
  %x4 = mpt.constant dense<[[0.7374348, 0.5537849]]> : tensor<1x2xf32>
  %y0, %y1, %y2 = mpt.group_norm_backward %x0, %x1, %x2, %x3, %x4 {groups = 2 : i64} : (tensor<1x4x2xf32>, tensor<1x4x2xf32>, tensor<4xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> (tensor<1x4x2xf32>, tensor<4xf32>, tensor<4xf32>)
  %e0 = mpt.constant dense<[[[2.7861767, 1.2085291], [-3.3991501, -0.5955558], [0.027778096, -0.14791574], [-0.037013497, 0.15715113]]]> : tensor<1x4x2xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x4x2xf32>
  %e1 = mpt.constant dense<[-2.2180657, 0.25925443, 0.175221, -0.73982203]> : tensor<4xf32>
  check.close %y1, %e1 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<4xf32>
  %e2 = mpt.constant dense<[0.25, 3.75, 3.375, 4.75]> : tensor<4xf32>
  check.close %y2, %e2 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<4xf32>
  return
}

func.func @softmax() {
  %x0 = mpt.constant dense<[[0.125, 2.0, 2.5], [-1.25, -2.75, -2.0]]> : tensor<2x3xf32>
  %y0 = mpt.softmax %x0 {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[0.05472905, 0.35687822, 0.58839273], [0.5897977, 0.13160165, 0.2786007]]> : tensor<2x3xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x3xf32>
  return
}

func.func @log_softmax() {
  %x0 = mpt.constant dense<[[0.125, 2.0, 2.5], [-1.25, -2.75, -2.0]]> : tensor<2x3xf32>
  %y0 = mpt.log_softmax %x0 {axis = 1 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[-2.9053607, -1.0303607, -0.53036064], [-0.52797574, -2.0279758, -1.2779758]]> : tensor<2x3xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x3xf32>
  return
}

func.func @softmax_backward() {
  %x0 = mpt.constant dense<[[-2.875, -0.375, -3.0], [-1.5, -1.5, 1.25]]> : tensor<2x3xf32>
  %x1 = mpt.constant dense<[[0.05472905, 0.35687822, 0.58839273], [0.5897977, 0.13160165, 0.2786007]]> : tensor<2x3xf32>
  %y0 = mpt.softmax_backward %x0, %x1 {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[-0.044803742, 0.60003847, -0.55523473], [-0.45187458, -0.10082685, 0.5527015]]> : tensor<2x3xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x3xf32>
  return
}

func.func @log_softmax_backward() {
  %x0 = mpt.constant dense<[[-2.875, -0.375, -3.0], [-1.5, -1.5, 1.25]]> : tensor<2x3xf32>
  %x1 = mpt.constant dense<[[-2.9053607, -1.0303607, -0.53036064], [-0.52797574, -2.0279758, -1.2779758]]> : tensor<2x3xf32>
  %y0 = mpt.log_softmax_backward %x0, %x1 {axis = 1 : i64} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %e0 = mpt.constant dense<[[-2.5329435, 1.8554889, 0.67745453], [-0.46785408, -1.2696971, 1.7375512]]> : tensor<2x3xf32>
  check.close %y0, %e0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x3xf32>
  return
}
