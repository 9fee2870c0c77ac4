// RUN: mpt-run %s
// softmax_cross_entropy against SciPy in float64, and the recursion of CTC.

func.func @none_plain() {
  %x0 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %y0, %y1, %y2 = mpt.softmax_cross_entropy %x0, %x1 {reduction = #mpt<loss_reduction none>} : (tensor<3x4xf32>, tensor<3xi64>) -> (tensor<3xf32>, tensor<3xf32>, tensor<f32>)
  %e0 = mpt.constant dense<[5.393819, 0.31555584, 3.053077]> : tensor<3xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e1 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<3.0> : tensor<f32>
  check.close %y2, %e2 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  return
}

func.func @none_plain_backward() {
  %x0 = mpt.constant dense<[1.125, -2.5, -2.875]> : tensor<3xf32>
  %x1 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x3 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  %x4 = mpt.constant dense<3.0> : tensor<f32>
  %y0 = mpt.softmax_cross_entropy_backward %x0, %x1, %x2, %x3, %x4 {reduction = #mpt<loss_reduction none>} : (tensor<3xf32>, tensor<3x4xf32>, tensor<3xi64>, tensor<3xf32>, tensor<f32>) -> tensor<3x4xf32>
  %e0 = mpt.constant dense<[[0.0074388753, 0.5215054, -1.1198874, 0.59094304], [0.6765416, -0.24677825, -0.07070316, -0.35906023], [-2.4060242, -0.1357386, -0.1974985, 2.7392614]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3x4xf32>
  return
}

func.func @none_weighted() {
  %x0 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x2 = mpt.constant dense<[1.0, 0.5, 2.0, 0.25]> : tensor<4xf32>
  %y0, %y1, %y2 = mpt.softmax_cross_entropy %x0, %x1, %x2 {reduction = #mpt<loss_reduction none>, ignore_index = 0 : i64} : (tensor<3x4xf32>, tensor<3xi64>, tensor<4xf32>) -> (tensor<3xf32>, tensor<3xf32>, tensor<f32>)
  %e0 = mpt.constant dense<[10.787638, 0.0, 0.76326925]> : tensor<3xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e1 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<2.25> : tensor<f32>
  check.close %y2, %e2 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  return
}

func.func @none_weighted_backward() {
  %x0 = mpt.constant dense<[-0.25, -1.125, 0.375]> : tensor<3xf32>
  %x1 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x3 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  %x4 = mpt.constant dense<2.25> : tensor<f32>
  %x5 = mpt.constant dense<[1.0, 0.5, 2.0, 0.25]> : tensor<4xf32>
  %y0 = mpt.softmax_cross_entropy_backward %x0, %x1, %x2, %x3, %x4, %x5 {reduction = #mpt<loss_reduction none>, ignore_index = 0 : i64} : (tensor<3xf32>, tensor<3x4xf32>, tensor<3xi64>, tensor<3xf32>, tensor<f32>, tensor<4xf32>) -> tensor<3x4xf32>
  %e0 = mpt.constant dense<[[-0.0033061667, -0.23178019, 0.49772772, -0.26264137], [0.0, -0.0, -0.0, -0.0], [0.07845731, 0.0044262586, 0.0064401687, -0.089323744]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3x4xf32>
  return
}

func.func @sum_plain() {
  %x0 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %y0, %y1, %y2 = mpt.softmax_cross_entropy %x0, %x1 {reduction = #mpt<loss_reduction sum>} : (tensor<3x4xf32>, tensor<3xi64>) -> (tensor<f32>, tensor<3xf32>, tensor<f32>)
  %e0 = mpt.constant dense<8.762451> : tensor<f32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  %e1 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<3.0> : tensor<f32>
  check.close %y2, %e2 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  return
}

func.func @sum_plain_backward() {
  %x0 = mpt.constant dense<1.5> : tensor<f32>
  %x1 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x3 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  %x4 = mpt.constant dense<3.0> : tensor<f32>
  %y0 = mpt.softmax_cross_entropy_backward %x0, %x1, %x2, %x3, %x4 {reduction = #mpt<loss_reduction sum>} : (tensor<f32>, tensor<3x4xf32>, tensor<3xi64>, tensor<3xf32>, tensor<f32>) -> tensor<3x4xf32>
  %e0 = mpt.constant dense<[[0.009918501, 0.6953406, -1.4931831, 0.78792405], [-0.40592498, 0.14806695, 0.042421892, 0.21543615], [1.255317, 0.07082014, 0.1030427, -1.4291799]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3x4xf32>
  return
}

func.func @sum_weighted() {
  %x0 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x2 = mpt.constant dense<[1.0, 0.5, 2.0, 0.25]> : tensor<4xf32>
  %y0, %y1, %y2 = mpt.softmax_cross_entropy %x0, %x1, %x2 {reduction = #mpt<loss_reduction sum>, ignore_index = 0 : i64} : (tensor<3x4xf32>, tensor<3xi64>, tensor<4xf32>) -> (tensor<f32>, tensor<3xf32>, tensor<f32>)
  %e0 = mpt.constant dense<11.550906> : tensor<f32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  %e1 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<2.25> : tensor<f32>
  check.close %y2, %e2 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  return
}

func.func @sum_weighted_backward() {
  %x0 = mpt.constant dense<1.5> : tensor<f32>
  %x1 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x3 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  %x4 = mpt.constant dense<2.25> : tensor<f32>
  %x5 = mpt.constant dense<[1.0, 0.5, 2.0, 0.25]> : tensor<4xf32>
  %y0 = mpt.softmax_cross_entropy_backward %x0, %x1, %x2, %x3, %x4, %x5 {reduction = #mpt<loss_reduction sum>, ignore_index = 0 : i64} : (tensor<f32>, tensor<3x4xf32>, tensor<3xi64>, tensor<3xf32>, tensor<f32>, tensor<4xf32>) -> tensor<3x4xf32>
  %e0 = mpt.constant dense<[[0.019837001, 1.3906811, -2.9863663, 1.5758481], [-0.0, 0.0, 0.0, 0.0], [0.31382924, 0.017705034, 0.025760675, -0.35729498]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3x4xf32>
  return
}

func.func @mean_plain() {
  %x0 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %y0, %y1, %y2 = mpt.softmax_cross_entropy %x0, %x1 {reduction = #mpt<loss_reduction mean>} : (tensor<3x4xf32>, tensor<3xi64>) -> (tensor<f32>, tensor<3xf32>, tensor<f32>)
  %e0 = mpt.constant dense<2.9208171> : tensor<f32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  %e1 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<3.0> : tensor<f32>
  check.close %y2, %e2 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  return
}

func.func @mean_plain_backward() {
  %x0 = mpt.constant dense<1.5> : tensor<f32>
  %x1 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x3 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  %x4 = mpt.constant dense<3.0> : tensor<f32>
  %y0 = mpt.softmax_cross_entropy_backward %x0, %x1, %x2, %x3, %x4 {reduction = #mpt<loss_reduction mean>} : (tensor<f32>, tensor<3x4xf32>, tensor<3xi64>, tensor<3xf32>, tensor<f32>) -> tensor<3x4xf32>
  %e0 = mpt.constant dense<[[0.0033061667, 0.23178019, -0.49772772, 0.26264137], [-0.13530833, 0.049355652, 0.014140631, 0.07181205], [0.418439, 0.023606714, 0.034347564, -0.47639328]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3x4xf32>
  return
}

func.func @mean_weighted() {
  %x0 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x1 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x2 = mpt.constant dense<[1.0, 0.5, 2.0, 0.25]> : tensor<4xf32>
  %y0, %y1, %y2 = mpt.softmax_cross_entropy %x0, %x1, %x2 {reduction = #mpt<loss_reduction mean>, ignore_index = 0 : i64} : (tensor<3x4xf32>, tensor<3xi64>, tensor<4xf32>) -> (tensor<f32>, tensor<3xf32>, tensor<f32>)
  %e0 = mpt.constant dense<5.133736> : tensor<f32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  %e1 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  check.close %y1, %e1 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3xf32>
  %e2 = mpt.constant dense<2.25> : tensor<f32>
  check.close %y2, %e2 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<f32>
  return
}

func.func @mean_weighted_backward() {
  %x0 = mpt.constant dense<1.5> : tensor<f32>
  %x1 = mpt.constant dense<[[-1.5, 2.75, -1.875, 2.875], [0.375, -1.625, -2.875, -1.25], [0.5, -2.375, -2.0, -2.375]]> : tensor<3x4xf32>
  %x2 = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %x3 = mpt.constant dense<[3.5188186, 0.6905558, 0.678077]> : tensor<3xf32>
  %x4 = mpt.constant dense<2.25> : tensor<f32>
  %x5 = mpt.constant dense<[1.0, 0.5, 2.0, 0.25]> : tensor<4xf32>
  %y0 = mpt.softmax_cross_entropy_backward %x0, %x1, %x2, %x3, %x4, %x5 {reduction = #mpt<loss_reduction mean>, ignore_index = 0 : i64} : (tensor<f32>, tensor<3x4xf32>, tensor<3xi64>, tensor<3xf32>, tensor<f32>, tensor<4xf32>) -> tensor<3x4xf32>
  %e0 = mpt.constant dense<[[0.008816444, 0.6180805, -1.3272738, 0.7003769], [-0.0, 0.0, 0.0, 0.0], [0.13947967, 0.007868905, 0.011449188, -0.15879776]]> : tensor<3x4xf32>
  check.close %y0, %e0 {atol = 1.0e-06, rtol = 1.0e-06} : tensor<3x4xf32>
  return
}

// CTC's recursion against sums over paths in float64, not in logarithms, and its gradient against differences of these. The first row
// has two labels that differ; the second has equal ones, and ends a step before the last.
func.func @alignments() {
  %emissions = mpt.constant dense<[[[-2.0, -2.375, -0.125, -2.375, -1.375], [-1.5, -1.875, -0.875, -2.875, -0.25]], [[-0.875, -1.125, -1.75, -1.25, -0.5], [-0.25, -0.125, -0.25, -0.5, -2.875]], [[-0.625, -2.0, -2.25, -0.75, -0.875], [-1.375, -0.875, -2.875, -0.625, -2.625]], [[-2.375, -2.5, -0.375, -1.25, -1.875], [-1.5, -2.0, -2.0, -2.0, -0.25]], [[-2.875, -1.625, -2.625, -0.875, -1.125], [-2.625, -0.625, -0.25, -1.125, -2.0]]]> : tensor<5x2x5xf32>
  %skips = mpt.constant dense<[[-1.0e30, -1.0e30, -1.0e30, 0.0, -1.0e30], [-1.0e30, -1.0e30, -1.0e30, -1.0e30, -1.0e30]]> : tensor<2x5xf32>
  %open = mpt.constant dense<[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]> : tensor<5x2xf32>
  %last, %alphas = mpt.alignments %emissions, %skips, %open : (tensor<5x2x5xf32>, tensor<2x5xf32>, tensor<5x2xf32>) -> (tensor<2x5xf32>, tensor<5x2x5xf32>)
  %e_last = mpt.constant dense<[[-8.75, -6.6250172, -6.4142183, -3.9491466, -4.5125603], [-4.625, -3.366971, -3.442133, -4.4145239, -3.0]]> : tensor<2x5xf32>
  check.close %last, %e_last {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x5xf32>
  %e_alphas = mpt.constant dense<[[[-2.0, -2.375, -1.0e30, -1.0e30, -1.0e30], [-1.5, -1.875, -1.0e30, -1.0e30, -1.0e30]], [[-2.875, -2.6018767, -4.125, -3.625, -1.0e30], [-1.75, -1.1018767, -2.125, -1.0e30, -1.0e30]], [[-3.5, -4.0359955, -4.6546421, -2.8960352, -4.5], [-3.125, -1.5561773, -3.6697815, -2.75, -1.0e30]], [[-5.875, -5.539361, -3.9800751, -3.7458397, -4.5877994], [-4.625, -3.366971, -3.442133, -4.4145239, -3.0]], [[-8.75, -6.6250172, -6.4142183, -3.9491466, -4.5125603], [-4.625, -3.366971, -3.442133, -4.4145239, -3.0]]]> : tensor<5x2x5xf32>
  check.close %alphas, %e_alphas {atol = 2.0e-06, rtol = 2.0e-06} : tensor<5x2x5xf32>
  %dlast = mpt.constant dense<[[-0.75, 0.75, -0.375, -0.625, 0.125], [0.875, 0.875, 0.75, -0.375, -1.0]]> : tensor<2x5xf32>
  %dalphas = mpt.alignments_backward %dlast, %alphas, %skips, %open : (tensor<2x5xf32>, tensor<5x2x5xf32>, tensor<2x5xf32>, tensor<5x2xf32>) -> tensor<5x2x5xf32>
  %reached = mpt.constant dense<[[[1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 0.0]], [[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]], [[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]]]> : tensor<5x2x5xf32>
  %counted = mpt.mul %dalphas, %reached : tensor<5x2x5xf32>
  %e_dalphas = mpt.constant dense<[[[-0.62017924, -0.25482076, 0.0, 0.0, 0.0], [2.0351663, -0.91016626, 0.0, 0.0, 0.0]], [[-0.36460252, -0.43123184, -0.057190842, -0.021974789, 0.0], [1.5043225, 0.89568704, -1.2750095, 0.0, 0.0]], [[-0.23605119, -0.2974758, -0.223685, -0.12409007, 0.006302044], [1.0258363, 1.3933276, -0.026039722, -1.2681241, 0.0]], [[-0.4373481, 0.31907303, -0.56244809, -0.23191712, 0.037640276], [0.875, 0.875, 0.75, -0.375, -1.0]], [[-0.75, 0.75, -0.375, -0.625, 0.125], [0.875, 0.875, 0.75, -0.375, -1.0]]]> : tensor<5x2x5xf32>
  check.close %counted, %e_dalphas {atol = 2.0e-06, rtol = 2.0e-06} : tensor<5x2x5xf32>
  return
}
