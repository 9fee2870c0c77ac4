// Cross entropy in each reduction, with weights, ignored labels, and gradient through log_sum_exp.
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
