// Cross entropy in each reduction, with weights, ignored labels, and gradient through log_sum_exp. Then the recursion of CTC.
func.func @mean(%x: tensor<3x4xf64>) -> tensor<f64> {
  %l = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %loss, %lse, %n = mpt.softmax_cross_entropy %x, %l {reduction = #mpt<loss_reduction mean>} : (tensor<3x4xf64>, tensor<3xi64>) -> (tensor<f64>, tensor<3xf64>, tensor<f64>)
  return %loss : tensor<f64>
}
func.func @mean_weighted_ignored(%x: tensor<3x4xf64>) -> tensor<f64> {
  %l = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %w = mpt.constant dense<[0.5, 1.0, 2.0, 1.5]> : tensor<4xf64>
  %loss, %lse, %n = mpt.softmax_cross_entropy %x, %l, %w {reduction = #mpt<loss_reduction mean>, ignore_index = 0} : (tensor<3x4xf64>, tensor<3xi64>, tensor<4xf64>) -> (tensor<f64>, tensor<3xf64>, tensor<f64>)
  return %loss : tensor<f64>
}
func.func @sum(%x: tensor<3x4xf64>) -> tensor<f64> {
  %l = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %loss, %lse, %n = mpt.softmax_cross_entropy %x, %l {reduction = #mpt<loss_reduction sum>} : (tensor<3x4xf64>, tensor<3xi64>) -> (tensor<f64>, tensor<3xf64>, tensor<f64>)
  return %loss : tensor<f64>
}
func.func @none_log_sum_exp(%x: tensor<3x4xf64>) -> (tensor<3xf64>, tensor<3xf64>) {
  %l = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %loss, %lse, %n = mpt.softmax_cross_entropy %x, %l {reduction = #mpt<loss_reduction none>} : (tensor<3x4xf64>, tensor<3xi64>) -> (tensor<3xf64>, tensor<3xf64>, tensor<f64>)
  return %loss, %lse : tensor<3xf64>, tensor<3xf64>
}
// CTC's recursion; every state can be reached in four steps. The second row ends a step early.
func.func @alignments(%x: tensor<5x2x5xf64>) -> tensor<2x5xf64> {
  %skips = mpt.constant dense<[[-1.0e30, -1.0e30, -1.0e30, 0.0, -1.0e30], [-1.0e30, -1.0e30, -1.0e30, -1.0e30, -1.0e30]]> : tensor<2x5xf64>
  %open = mpt.constant dense<[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]> : tensor<5x2xf64>
  %last, %alphas = mpt.alignments %x, %skips, %open : (tensor<5x2x5xf64>, tensor<2x5xf64>, tensor<5x2xf64>) -> (tensor<2x5xf64>, tensor<5x2x5xf64>)
  return %last : tensor<2x5xf64>
}
func.func @alignments_of_all_steps(%x: tensor<5x2x5xf64>) -> (tensor<2x5xf64>, tensor<1x2x5xf64>) {
  %skips = mpt.constant dense<[[-1.0e30, -1.0e30, -1.0e30, 0.0, -1.0e30], [-1.0e30, -1.0e30, -1.0e30, -1.0e30, -1.0e30]]> : tensor<2x5xf64>
  %open = mpt.constant dense<[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]> : tensor<5x2xf64>
  %last, %alphas = mpt.alignments %x, %skips, %open : (tensor<5x2x5xf64>, tensor<2x5xf64>, tensor<5x2xf64>) -> (tensor<2x5xf64>, tensor<5x2x5xf64>)
  %some = mpt.slice %alphas {starts = array<i64: 3, 0, 0>, sizes = array<i64: 1, 2, 5>, strides = array<i64: 1, 1, 1>} : (tensor<5x2x5xf64>) -> tensor<1x2x5xf64>
  return %last, %some : tensor<2x5xf64>, tensor<1x2x5xf64>
}
func.func @alignments_backward(%d: tensor<2x5xf64>, %x: tensor<5x2x5xf64>) -> tensor<5x2x5xf64> {
  %skips = mpt.constant dense<[[-1.0e30, -1.0e30, -1.0e30, 0.0, -1.0e30], [-1.0e30, -1.0e30, -1.0e30, -1.0e30, -1.0e30]]> : tensor<2x5xf64>
  %open = mpt.constant dense<[[1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]> : tensor<5x2xf64>
  %y = mpt.alignments_backward %d, %x, %skips, %open : (tensor<2x5xf64>, tensor<5x2x5xf64>, tensor<2x5xf64>, tensor<5x2xf64>) -> tensor<5x2x5xf64>
  return %y : tensor<5x2x5xf64>
}
// The gradient of the gradient. log_sum_exp is an operand of its own.
func.func @backward_mean(%d: tensor<f64>, %x: tensor<3x4xf64>, %s: tensor<3xf64>) -> tensor<3x4xf64> {
  %l = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %n = mpt.constant dense<3.0> : tensor<f64>
  %y = mpt.softmax_cross_entropy_backward %d, %x, %l, %s, %n {reduction = #mpt<loss_reduction mean>} : (tensor<f64>, tensor<3x4xf64>, tensor<3xi64>, tensor<3xf64>, tensor<f64>) -> tensor<3x4xf64>
  return %y : tensor<3x4xf64>
}
func.func @backward_none_weighted_ignored(%d: tensor<3xf64>, %x: tensor<3x4xf64>, %s: tensor<3xf64>) -> tensor<3x4xf64> {
  %l = mpt.constant dense<[2, 0, 3]> : tensor<3xi64>
  %n = mpt.constant dense<3.0> : tensor<f64>
  %w = mpt.constant dense<[0.5, 1.0, 2.0, 1.5]> : tensor<4xf64>
  %y = mpt.softmax_cross_entropy_backward %d, %x, %l, %s, %n, %w {reduction = #mpt<loss_reduction none>, ignore_index = 0 : i64} : (tensor<3xf64>, tensor<3x4xf64>, tensor<3xi64>, tensor<3xf64>, tensor<f64>, tensor<4xf64>) -> tensor<3x4xf64>
  return %y : tensor<3x4xf64>
}
