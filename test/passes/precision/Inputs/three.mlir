// Training step of three linear layers, y = ((x a) b) c, from a gradient of ones.
module {
  train.state parameter @a : tensor<4x16xf32> = dense<0.25> : tensor<4x16xf32>
  train.state parameter @b : tensor<16x16xf32> = dense<0.5> : tensor<16x16xf32>
  train.state parameter @c : tensor<16x2xf32> = dense<0.75> : tensor<16x2xf32>
  train.state slot @b.momentum : tensor<16x16xf32> of "b" = dense<0.0> : tensor<16x16xf32> {mpt.storable}
  func.func @step(%x: tensor<8x4xf32> {mpt.name = "x"}, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<8x2xf32> {mpt.name = "y"}) {
    %a = train.read @a : tensor<4x16xf32>
    %b = train.read @b : tensor<16x16xf32>
    %c = train.read @c : tensor<16x2xf32>
    %m = train.read @b.momentum : tensor<16x16xf32>
    %step = mpt.constant dense<1> : tensor<i64>
    %0 = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32> loc("first")
    %1 = mpt.matmul %0, %b : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("second")
    %2 = mpt.matmul %1, %c : (tensor<8x16xf32>, tensor<16x2xf32>) -> tensor<8x2xf32> loc("third")
    %one = mpt.constant dense<1.0> : tensor<8x2xf32>
    %scale = mpt.constant dense<1.0> : tensor<f32>
    %dy = train.scale_loss %one, %scale {mpt.seed} : tensor<8x2xf32>, tensor<f32>
    %dc = mpt.matmul %1, %dy {transpose_a = true} : (tensor<8x16xf32>, tensor<8x2xf32>) -> tensor<16x2xf32> loc("third")
    %d1 = mpt.matmul %dy, %c {transpose_b = true} : (tensor<8x2xf32>, tensor<16x2xf32>) -> tensor<8x16xf32> loc("third")
    %db = mpt.matmul %0, %d1 {transpose_a = true} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32> loc("second")
    %d0 = mpt.matmul %d1, %b {transpose_b = true} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("second")
    %da = mpt.matmul %x, %d0 {transpose_a = true} : (tensor<8x4xf32>, tensor<8x16xf32>) -> tensor<4x16xf32> loc("first")
    %ga = train.gradient @a, %da : tensor<4x16xf32>
    %gb = train.gradient @b, %db : tensor<16x16xf32>
    %gc = train.gradient @c, %dc : tensor<16x2xf32>
    %na = mpt.sgd %a, %ga, %lr, %step : (tensor<4x16xf32>, tensor<4x16xf32>, tensor<f32>, tensor<i64>) -> tensor<4x16xf32>
    %nb, %nm = mpt.sgd %b, %gb, %lr, %step, %m {momentum = 0.9} : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<f32>, tensor<i64>, tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>)
    %nc = mpt.sgd %c, %gc, %lr, %step : (tensor<16x2xf32>, tensor<16x2xf32>, tensor<f32>, tensor<i64>) -> tensor<16x2xf32>
    train.write @a, %na : tensor<4x16xf32>
    train.write @b, %nb : tensor<16x16xf32>
    train.write @b.momentum, %nm : tensor<16x16xf32>
    train.write @c, %nc : tensor<16x2xf32>
    return %2 : tensor<8x2xf32>
  }
  func.func @evaluate(%x: tensor<8x4xf32> {mpt.name = "x"}) -> (tensor<8x2xf32> {mpt.name = "y"}) {
    %a = train.read @a : tensor<4x16xf32>
    %b = train.read @b : tensor<16x16xf32>
    %c = train.read @c : tensor<16x2xf32>
    %0 = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32> loc("first")
    %1 = mpt.matmul %0, %b : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("second")
    %2 = mpt.matmul %1, %c : (tensor<8x16xf32>, tensor<16x2xf32>) -> tensor<8x2xf32> loc("third")
    return %2 : tensor<8x2xf32>
  }
}
