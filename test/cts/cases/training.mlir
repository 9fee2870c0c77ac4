// Optimizers, losses' gradients and random numbers: the ops of a step beside differentiable ones. Optimizers work on FP32
// masters, whatever the type of the graph.
func.func @sgd(%p: tensor<37xf32>, %g: tensor<37xf32>) -> tensor<37xf32> {
  %lr = mpt.constant dense<0.1> : tensor<f32>
  %t = mpt.constant dense<3> : tensor<i64>
  %new = mpt.sgd %p, %g, %lr, %t {weight_decay = 0.01 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>) -> tensor<37xf32>
  return %new : tensor<37xf32>
}
func.func @sgd_first_momentum(%p: tensor<37xf32>, %g: tensor<37xf32>, %m: tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.1> : tensor<f32>
  %t = mpt.constant dense<1> : tensor<i64>
  %new, %slot = mpt.sgd %p, %g, %lr, %t, %m {momentum = 0.9 : f64, dampening = 0.5 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>)
  return %new, %slot : tensor<37xf32>, tensor<37xf32>
}
func.func @sgd_nesterov(%p: tensor<3x5xf32>, %g: tensor<3x5xf32>, %m: tensor<3x5xf32>, %lr: tensor<f32>, %t: tensor<i64> {check.low = 2.0, check.high = 9.0}) -> (tensor<3x5xf32>, tensor<3x5xf32>) {
  %new, %slot = mpt.sgd %p, %g, %lr, %t, %m {momentum = 0.9 : f64, nesterov = true, weight_decay = 0.01 : f64} : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>, tensor<i64>, tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>)
  return %new, %slot : tensor<3x5xf32>, tensor<3x5xf32>
}
func.func @adam(%p: tensor<37xf32>, %g: tensor<37xf32>, %m: tensor<37xf32>, %v: tensor<37xf32> {check.low = 0.0, check.high = 2.0}, %t: tensor<i64> {check.low = 1.0, check.high = 99.0}) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %new, %m1, %v1 = mpt.adam %p, %g, %lr, %t, %m, %v {weight_decay = 0.01 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
  return %new, %m1, %v1 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}
func.func @adamw(%p: tensor<37xf32>, %g: tensor<37xf32>, %m: tensor<37xf32>, %v: tensor<37xf32> {check.low = 0.0, check.high = 2.0}) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %t = mpt.constant dense<1> : tensor<i64>
  %new, %m1, %v1 = mpt.adam %p, %g, %lr, %t, %m, %v {weight_decay = 0.01 : f64, decoupled = true} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
  return %new, %m1, %v1 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}
func.func @adagrad(%p: tensor<37xf32>, %g: tensor<37xf32>, %s: tensor<37xf32> {check.low = 0.0, check.high = 2.0}) -> (tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %t = mpt.constant dense<5> : tensor<i64>
  %new, %sum = mpt.adagrad %p, %g, %lr, %t, %s {lr_decay = 0.5 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>)
  return %new, %sum : tensor<37xf32>, tensor<37xf32>
}
func.func @momentum(%p: tensor<37xf32>, %g: tensor<37xf32>, %m: tensor<37xf32>, %t: tensor<i64> {check.low = 0.0, check.high = 3.0}) -> (tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.1> : tensor<f32>
  %new, %slot = mpt.momentum %p, %g, %lr, %t, %m {alpha = 0.9 : f64, beta = 0.8 : f64, norm_coefficient = 0.01 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>)
  return %new, %slot : tensor<37xf32>, tensor<37xf32>
}
func.func @momentum_nesterov(%p: tensor<3x5xf32>, %g: tensor<3x5xf32>, %m: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>) {
  %lr = mpt.constant dense<0.1> : tensor<f32>
  %t = mpt.constant dense<2> : tensor<i64>
  %new, %slot = mpt.momentum %p, %g, %lr, %t, %m {alpha = 0.9 : f64, beta = 1.0 : f64, nesterov = true} : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>, tensor<i64>, tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>)
  return %new, %slot : tensor<3x5xf32>, tensor<3x5xf32>
}
func.func @adam_hat(%p: tensor<37xf32>, %g: tensor<37xf32>, %m: tensor<37xf32>, %v: tensor<37xf32> {check.low = 0.0, check.high = 2.0}, %t: tensor<i64> {check.low = 0.0, check.high = 99.0}) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %new, %m1, %v1 = mpt.adam_hat %p, %g, %lr, %t, %m, %v {norm_coefficient = 0.01 : f64, norm_coefficient_post = 0.1 : f64, late_decay = 0.1 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
  return %new, %m1, %v1 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}
func.func @rmsprop(%p: tensor<37xf32>, %g: tensor<37xf32>, %v: tensor<37xf32> {check.low = 4.0, check.high = 6.0}, %a: tensor<37xf32> {check.low = -1.0, check.high = 1.0}, %b: tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %new, %v1, %a1, %b1 = mpt.rmsprop %p, %g, %lr, %v, %a, %b {momentum = 0.9 : f64, centered = true, weight_decay = 0.01 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
  return %new, %v1, %a1, %b1 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}
func.func @lion(%p: tensor<37xf32>, %g: tensor<37xf32> {check.low = 1.0, check.high = 2.0}, %m: tensor<37xf32> {check.low = 1.0, check.high = 2.0}) -> (tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %new, %m1 = mpt.lion %p, %g, %lr, %m {weight_decay = 0.1 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>)
  return %new, %m1 : tensor<37xf32>, tensor<37xf32>
}
func.func @lamb(%p: tensor<37xf32>, %g: tensor<37xf32>, %m: tensor<37xf32>, %v: tensor<37xf32> {check.low = 1.0, check.high = 2.0}) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>) {
  %lr = mpt.constant dense<0.01> : tensor<f32>
  %t = mpt.constant dense<3> : tensor<i64>
  %new, %m1, %v1 = mpt.lamb %p, %g, %lr, %t, %m, %v {weight_decay = 0.1 : f64} : (tensor<37xf32>, tensor<37xf32>, tensor<f32>, tensor<i64>, tensor<37xf32>, tensor<37xf32>) -> (tensor<37xf32>, tensor<37xf32>, tensor<37xf32>)
  return %new, %m1, %v1 : tensor<37xf32>, tensor<37xf32>, tensor<37xf32>
}
func.func @lars(%p: tensor<3x5xf32>, %g: tensor<3x5xf32>, %m: tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>) {
  %lr = mpt.constant dense<0.1> : tensor<f32>
  %new, %m1 = mpt.lars %p, %g, %lr, %m {weight_decay = 0.1 : f64} : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>, tensor<3x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>)
  return %new, %m1 : tensor<3x5xf32>, tensor<3x5xf32>
}
func.func @adafactor(%p: tensor<3x5xf32>, %g: tensor<3x5xf32>, %r: tensor<3x1xf32> {check.low = 1.0, check.high = 2.0}, %c: tensor<1x5xf32> {check.low = 1.0, check.high = 2.0}) -> (tensor<3x5xf32>, tensor<3x1xf32>, tensor<1x5xf32>) {
  %lr = mpt.constant dense<0.1> : tensor<f32>
  %t = mpt.constant dense<7> : tensor<i64>
  %new, %r1, %c1 = mpt.adafactor %p, %g, %lr, %t, %r, %c {weight_decay = 0.1 : f64} : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>, tensor<i64>, tensor<3x1xf32>, tensor<1x5xf32>) -> (tensor<3x5xf32>, tensor<3x1xf32>, tensor<1x5xf32>)
  return %new, %r1, %c1 : tensor<3x5xf32>, tensor<3x1xf32>, tensor<1x5xf32>
}
func.func @relu_backward(%dy: tensor<5x19xf64>, %y: tensor<5x19xf64>) -> tensor<5x19xf64> {
  %0 = mpt.relu_backward %dy, %y : tensor<5x19xf64>
  return %0 : tensor<5x19xf64>
}
func.func @saturating_backward(%dy: tensor<5x19xf64>, %y: tensor<5x19xf64> {check.low = 0.0, check.high = 1.0}) -> (tensor<5x19xf64>, tensor<5x19xf64>) {
  %0 = mpt.sigmoid_backward %dy, %y : tensor<5x19xf64>
  %1 = mpt.tanh_backward %dy, %y : tensor<5x19xf64>
  return %0, %1 : tensor<5x19xf64>, tensor<5x19xf64>
}
func.func @cross_entropy(%x: tensor<6x11xf64>, %labels: tensor<6xi64> {check.high = 11.0}, %dy: tensor<f64>) -> (tensor<f64>, tensor<6x11xf64>) {
  %loss, %lse, %total = mpt.softmax_cross_entropy %x, %labels {reduction = #mpt<loss_reduction mean>, ignore_index = 4 : i64} : (tensor<6x11xf64>, tensor<6xi64>) -> (tensor<f64>, tensor<6xf64>, tensor<f64>)
  %dx = mpt.softmax_cross_entropy_backward %dy, %x, %labels, %lse, %total {reduction = #mpt<loss_reduction mean>, ignore_index = 4 : i64} : (tensor<f64>, tensor<6x11xf64>, tensor<6xi64>, tensor<6xf64>, tensor<f64>) -> tensor<6x11xf64>
  return %loss, %dx : tensor<f64>, tensor<6x11xf64>
}
func.func @uniform(%a: tensor<5x13xf64>, %step: tensor<i64> {check.high = 99.0}) -> (tensor<5x13xf64>, tensor<5x13xf64>) {
  %seed = mpt.constant dense<7> : tensor<1xi64>
  %one = mpt.reshape %step : (tensor<i64>) -> tensor<1xi64>
  %key = mpt.concat %seed, %one {axis = 0 : i64} : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %u = mpt.random_uniform %key {low = -1.0 : f64, high = 3.0 : f64, stream = 2 : i64} : (tensor<2xi64>) -> tensor<5x13xf64>
  %d = mpt.dropout %a, %key {ratio = 0.5 : f64, stream = 3 : i64} : (tensor<5x13xf64>, tensor<2xi64>) -> tensor<5x13xf64>
  return %u, %d : tensor<5x13xf64>, tensor<5x13xf64>
}
func.func @iota(%a: tensor<3x5xi64>) -> (tensor<3x5xi64>, tensor<3x5xi64>) {
  %0 = mpt.iota {axis = 1 : i64} : () -> tensor<3x5xi64>
  %1 = mpt.add %0, %a : tensor<3x5xi64>
  return %0, %1 : tensor<3x5xi64>, tensor<3x5xi64>
}
