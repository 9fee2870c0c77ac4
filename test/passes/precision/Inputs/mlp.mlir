// Training step of a two-layer perceptron with SGD, global-norm clipping, its gradients and its evaluation.
module attributes {mpt.name = "mlp"} {
  train.state parameter @fc1.weight : tensor<5x4xf32> = dense<0.25> : tensor<5x4xf32>
  train.state parameter @fc1.bias : tensor<5xf32> = dense<0.0> : tensor<5xf32>
  train.state parameter @fc2.weight : tensor<3x5xf32> = dense<0.5> : tensor<3x5xf32>
  train.state slot @fc1.weight.momentum : tensor<5x4xf32> of "fc1.weight" = dense<0.0> : tensor<5x4xf32>
  train.state counter @mpt.step : tensor<i64> = dense<0> : tensor<i64>

  func.func @step(%x: tensor<8x4xf32> {mpt.name = "x"}, %labels: tensor<8xi64> {mpt.name = "labels"}, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "grad_norm", train.role = #train<role grad_norm>}) {
    %w1 = train.read @fc1.weight : tensor<5x4xf32> loc("fc1")
    %b1 = train.read @fc1.bias : tensor<5xf32> loc("fc1")
    %w2 = train.read @fc2.weight : tensor<3x5xf32> loc("fc2")
    %h0 = mpt.matmul %x, %w1 {transpose_b = true} : (tensor<8x4xf32>, tensor<5x4xf32>) -> tensor<8x5xf32> loc("fc1")
    %bb = mpt.broadcast %b1 {dims = array<i64: 1>} : (tensor<5xf32>) -> tensor<8x5xf32> loc("fc1")
    %h1 = mpt.add %h0, %bb : tensor<8x5xf32> loc("fc1")
    %h = mpt.relu %h1 : tensor<8x5xf32> loc("relu")
    %logits = mpt.matmul %h, %w2 {transpose_b = true} : (tensor<8x5xf32>, tensor<3x5xf32>) -> tensor<8x3xf32> loc("fc2")
    %loss, %lse, %total = mpt.softmax_cross_entropy %logits, %labels {reduction = #mpt<loss_reduction mean>} : (tensor<8x3xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>) loc("loss")
    %seed = mpt.constant dense<1.0> : tensor<f32> {mpt.seed} loc("loss")
    %dlogits = mpt.softmax_cross_entropy_backward %seed, %logits, %labels, %lse, %total {reduction = #mpt<loss_reduction mean>} : (tensor<f32>, tensor<8x3xf32>, tensor<8xi64>, tensor<8xf32>, tensor<f32>) -> tensor<8x3xf32> loc("loss")
    %dw2 = mpt.matmul %dlogits, %h {transpose_a = true} : (tensor<8x3xf32>, tensor<8x5xf32>) -> tensor<3x5xf32> loc("fc2")
    %dh = mpt.matmul %dlogits, %w2 : (tensor<8x3xf32>, tensor<3x5xf32>) -> tensor<8x5xf32> loc("fc2")
    %dh1 = mpt.relu_backward %dh, %h : tensor<8x5xf32> loc("relu")
    %db1 = mpt.reduce sum %dh1 {axes = array<i64: 0>} : (tensor<8x5xf32>) -> tensor<5xf32> loc("fc1")
    %dw1 = mpt.matmul %dh1, %x {transpose_a = true} : (tensor<8x5xf32>, tensor<8x4xf32>) -> tensor<5x4xf32> loc("fc1")
    %g1 = train.gradient @fc1.weight, %dw1 : tensor<5x4xf32>
    %gb = train.gradient @fc1.bias, %db1 : tensor<5xf32>
    %g2 = train.gradient @fc2.weight, %dw2 : tensor<3x5xf32>
    %norm = train.global_norm %g1, %gb, %g2 : (tensor<5x4xf32>, tensor<5xf32>, tensor<3x5xf32>) -> tensor<f32>
    %limit = mpt.constant dense<1.0> : tensor<f32>
    %ratio = mpt.div %limit, %norm : tensor<f32>
    %clip = mpt.min %ratio, %limit : tensor<f32>
    %clip1 = mpt.broadcast %clip {dims = array<i64>} : (tensor<f32>) -> tensor<5x4xf32>
    %c1 = mpt.mul %g1, %clip1 : tensor<5x4xf32>
    %old = train.read @mpt.step : tensor<i64>
    %one = mpt.constant dense<1> : tensor<i64>
    %now = mpt.add %old, %one : tensor<i64>
    %m1 = train.read @fc1.weight.momentum : tensor<5x4xf32>
    %nw1, %nm1 = mpt.sgd %w1, %c1, %lr, %now, %m1 {momentum = 0.9} : (tensor<5x4xf32>, tensor<5x4xf32>, tensor<f32>, tensor<i64>, tensor<5x4xf32>) -> (tensor<5x4xf32>, tensor<5x4xf32>)
    %nb1 = mpt.sgd %b1, %gb, %lr, %now : (tensor<5xf32>, tensor<5xf32>, tensor<f32>, tensor<i64>) -> tensor<5xf32>
    %nw2 = mpt.sgd %w2, %g2, %lr, %now : (tensor<3x5xf32>, tensor<3x5xf32>, tensor<f32>, tensor<i64>) -> tensor<3x5xf32>
    train.write @fc1.weight, %nw1 : tensor<5x4xf32>
    train.write @fc1.weight.momentum, %nm1 : tensor<5x4xf32>
    train.write @fc1.bias, %nb1 : tensor<5xf32>
    train.write @fc2.weight, %nw2 : tensor<3x5xf32>
    train.write @mpt.step, %now : tensor<i64>
    return %loss, %norm : tensor<f32>, tensor<f32>
  }

  func.func @gradients(%x: tensor<8x4xf32> {mpt.name = "x"}, %labels: tensor<8xi64> {mpt.name = "labels"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<3x5xf32> {mpt.name = "fc2.weight"}) {
    %w1 = train.read @fc1.weight : tensor<5x4xf32> loc("fc1")
    %b1 = train.read @fc1.bias : tensor<5xf32> loc("fc1")
    %w2 = train.read @fc2.weight : tensor<3x5xf32> loc("fc2")
    %h0 = mpt.matmul %x, %w1 {transpose_b = true} : (tensor<8x4xf32>, tensor<5x4xf32>) -> tensor<8x5xf32> loc("fc1")
    %bb = mpt.broadcast %b1 {dims = array<i64: 1>} : (tensor<5xf32>) -> tensor<8x5xf32> loc("fc1")
    %h1 = mpt.add %h0, %bb : tensor<8x5xf32> loc("fc1")
    %h = mpt.relu %h1 : tensor<8x5xf32> loc("relu")
    %logits = mpt.matmul %h, %w2 {transpose_b = true} : (tensor<8x5xf32>, tensor<3x5xf32>) -> tensor<8x3xf32> loc("fc2")
    %loss, %lse, %total = mpt.softmax_cross_entropy %logits, %labels {reduction = #mpt<loss_reduction mean>} : (tensor<8x3xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<8xf32>, tensor<f32>) loc("loss")
    %seed = mpt.constant dense<1.0> : tensor<f32> {mpt.seed} loc("loss")
    %dlogits = mpt.softmax_cross_entropy_backward %seed, %logits, %labels, %lse, %total {reduction = #mpt<loss_reduction mean>} : (tensor<f32>, tensor<8x3xf32>, tensor<8xi64>, tensor<8xf32>, tensor<f32>) -> tensor<8x3xf32> loc("loss")
    %dw2 = mpt.matmul %dlogits, %h {transpose_a = true} : (tensor<8x3xf32>, tensor<8x5xf32>) -> tensor<3x5xf32> loc("fc2")
    %g2 = train.gradient @fc2.weight, %dw2 : tensor<3x5xf32>
    return %loss, %g2 : tensor<f32>, tensor<3x5xf32>
  }

  func.func @evaluate(%x: tensor<8x4xf32> {mpt.name = "x"}) -> (tensor<8x3xf32> {mpt.name = "logits"}) {
    %w1 = train.read @fc1.weight : tensor<5x4xf32> loc("fc1")
    %b1 = train.read @fc1.bias : tensor<5xf32> loc("fc1")
    %w2 = train.read @fc2.weight : tensor<3x5xf32> loc("fc2")
    %h0 = mpt.matmul %x, %w1 {transpose_b = true} : (tensor<8x4xf32>, tensor<5x4xf32>) -> tensor<8x5xf32> loc("fc1")
    %bb = mpt.broadcast %b1 {dims = array<i64: 1>} : (tensor<5xf32>) -> tensor<8x5xf32> loc("fc1")
    %h1 = mpt.add %h0, %bb : tensor<8x5xf32> loc("fc1")
    %h = mpt.relu %h1 : tensor<8x5xf32> loc("relu")
    %logits = mpt.matmul %h, %w2 {transpose_b = true} : (tensor<8x5xf32>, tensor<3x5xf32>) -> tensor<8x3xf32> loc("fc2")
    return %logits : tensor<8x3xf32>
  }
}
