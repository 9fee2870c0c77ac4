// RUN: mpt-run %s
// Attention among ops on tensors against the matrix multiplications and the softmax that it stands for: a bias, and a causal mask.

func.func @biased() {
  %q = mpt.constant dense<[[[[0.125, -0.125, 0.625, 0.125], [-0.5625, 0.375, 1.3125, 0.9375], [-0.6875, -1.25, -0.625, 0.0625]], [[-2.3125, -0.25, -1.25, -0.75], [-0.5625, -0.3125, 0.4375, 1.0625], [-0.125, 1.375, -0.6875, 0.375]]]]> : tensor<1x2x3x4xf32>
  %k = mpt.constant dense<[[[[0.875, 0.125, -0.75, -0.9375], [-0.4375, 0.25, -1.0, -0.1875], [-0.1875, 0.5625, 0.1875, 0.375], [-0.625, -0.125, 0.8125, 1.5], [-1.25, 1.5, 1.375, 0.8125]], [[0.25, -0.3125, 1.4375, 1.9375], [1.8125, 1.3125, 0.375, -1.1875], [-0.0, 0.6875, -1.3125, 0.375], [0.4375, 0.6875, -1.1875, -0.6875], [-0.4375, -1.1875, 1.75, -0.5]]]]> : tensor<1x2x5x4xf32>
  %v = mpt.constant dense<[[[[0.3125, -0.25], [1.5625, 1.3125], [0.625, -2.1875], [0.0625, 0.6875], [1.0, -0.625]], [[1.8125, -1.3125], [-0.6875, 0.9375], [0.0625, 2.0], [0.1875, -0.625], [-0.375, -1.0625]]]]> : tensor<1x2x5x2xf32>
  %g = mpt.constant dense<[[[[-1.25, 0.625], [0.5625, 1.3125], [-0.75, 1.6875]], [[-0.3125, 1.5625], [-0.4375, -0.75], [0.25, 1.0625]]]]> : tensor<1x2x3x2xf32>
  %scale = mpt.constant dense<0.5> : tensor<1x2x3x5xf32>
  %bias = mpt.constant dense<[[[[0.5, 0xFF800000, -1.0, 0.0, 2.0]]]]> : tensor<1x1x1x5xf32>
  %mask = mpt.broadcast %bias {dims = array<i64: 0, 1, 2, 3>} : (tensor<1x1x1x5xf32>) -> tensor<1x2x3x5xf32>
  %s0 = mpt.matmul %q, %k {transpose_b = true} : (tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x3x5xf32>
  %s1 = mpt.mul %s0, %scale : tensor<1x2x3x5xf32>
  %s = mpt.add %s1, %mask : tensor<1x2x3x5xf32>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xf32>
  %o = mpt.matmul %p, %v : (tensor<1x2x3x5xf32>, tensor<1x2x5x2xf32>) -> tensor<1x2x3x2xf32>
  %e = mpt.exp %s : tensor<1x2x3x5xf32>
  %sum = mpt.reduce sum %e {axes = array<i64: 3>} : (tensor<1x2x3x5xf32>) -> tensor<1x2x3xf32>
  %log = mpt.log %sum : tensor<1x2x3xf32>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<1x2x3x2xf32>, tensor<1x2x5x2xf32>) -> tensor<1x2x3x5xf32>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<1x2x3x5xf32>, tensor<1x2x3x2xf32>) -> tensor<1x2x5x2xf32>
  %ds0 = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<1x2x3x5xf32>, tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xf32>
  %ds = mpt.mul %ds0, %scale : tensor<1x2x3x5xf32>
  %dq = mpt.matmul %ds, %k : (tensor<1x2x3x5xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x3x4xf32>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<1x2x3x5xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x5x4xf32>
  %o1, %stats = library.attention %q, %k, %v bias %bias : tensor<1x1x1x5xf32> {scale = 5.0e-01 : f64} : tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x2xf32> -> tensor<1x2x3x2xf32>, tensor<1x2x3xf32>
  %dq1, %dk1, %dv1 = library.attention_gradient %q, %k, %v bias %bias : tensor<1x1x1x5xf32> of %o1, %stats from %g {scale = 5.0e-01 : f64} : tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x2xf32> of tensor<1x2x3x2xf32>, tensor<1x2x3xf32> from tensor<1x2x3x2xf32> -> tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x2xf32>
  check.close %o1, %o {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x3x2xf32>
  check.close %stats, %log {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x3xf32>
  check.close %dq1, %dq {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x3x4xf32>
  check.close %dk1, %dk {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x5x4xf32>
  check.close %dv1, %dv {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x5x2xf32>
  return
}

func.func @causal() {
  %q = mpt.constant dense<[[[[0.1875, -0.5625, -1.3125, -1.375], [0.5, 1.0, -0.1875, -1.0625], [0.875, -1.25, -0.6875, 0.625]], [[-2.25, 0.375, -0.5625, 0.125], [-0.0625, 0.1875, 0.6875, -0.75], [1.4375, 0.75, 0.8125, 1.1875]]]]> : tensor<1x2x3x4xf32>
  %k = mpt.constant dense<[[[[0.8125, 0.875, 0.0625, -1.4375], [-0.125, -0.75, -1.4375, 0.25], [-0.5625, -1.0, -1.0625, 0.25], [0.375, 1.3125, -0.0, 1.0625], [1.375, 1.125, -2.375, 1.25]], [[0.3125, 0.4375, 0.375, 0.375], [0.3125, -0.375, -1.875, -0.125], [-0.8125, 1.0625, -0.3125, 0.0625], [-0.875, -0.5, -0.0, -1.5], [0.3125, -0.125, -1.1875, -2.375]]]]> : tensor<1x2x5x4xf32>
  %v = mpt.constant dense<[[[[0.5, -0.3125], [-0.5, -0.25], [1.8125, -0.0625], [0.0625, -1.5], [1.625, 0.9375]], [[1.0625, 0.0625], [0.9375, 0.375], [0.625, -0.125], [-1.5, 1.0], [-1.9375, -0.25]]]]> : tensor<1x2x5x2xf32>
  %g = mpt.constant dense<[[[[-0.1875, -1.0625], [0.625, -0.1875], [-0.4375, 0.5]], [[-0.5, 1.375], [0.375, -0.5], [-1.9375, -1.3125]]]]> : tensor<1x2x3x2xf32>
  %scale = mpt.constant dense<0.5> : tensor<1x2x3x5xf32>
  %mask2 = mpt.constant dense<[[0.0, 0xFF800000, 0xFF800000, 0xFF800000, 0xFF800000], [0.0, 0.0, 0xFF800000, 0xFF800000, 0xFF800000], [0.0, 0.0, 0.0, 0xFF800000, 0xFF800000]]> : tensor<3x5xf32>
  %mask = mpt.broadcast %mask2 {dims = array<i64: 2, 3>} : (tensor<3x5xf32>) -> tensor<1x2x3x5xf32>
  %s0 = mpt.matmul %q, %k {transpose_b = true} : (tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x3x5xf32>
  %s1 = mpt.mul %s0, %scale : tensor<1x2x3x5xf32>
  %s = mpt.add %s1, %mask : tensor<1x2x3x5xf32>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xf32>
  %o = mpt.matmul %p, %v : (tensor<1x2x3x5xf32>, tensor<1x2x5x2xf32>) -> tensor<1x2x3x2xf32>
  %e = mpt.exp %s : tensor<1x2x3x5xf32>
  %sum = mpt.reduce sum %e {axes = array<i64: 3>} : (tensor<1x2x3x5xf32>) -> tensor<1x2x3xf32>
  %log = mpt.log %sum : tensor<1x2x3xf32>
  %dp = mpt.matmul %g, %v {transpose_b = true} : (tensor<1x2x3x2xf32>, tensor<1x2x5x2xf32>) -> tensor<1x2x3x5xf32>
  %dv = mpt.matmul %p, %g {transpose_a = true} : (tensor<1x2x3x5xf32>, tensor<1x2x3x2xf32>) -> tensor<1x2x5x2xf32>
  %ds0 = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<1x2x3x5xf32>, tensor<1x2x3x5xf32>) -> tensor<1x2x3x5xf32>
  %ds = mpt.mul %ds0, %scale : tensor<1x2x3x5xf32>
  %dq = mpt.matmul %ds, %k : (tensor<1x2x3x5xf32>, tensor<1x2x5x4xf32>) -> tensor<1x2x3x4xf32>
  %dk = mpt.matmul %ds, %q {transpose_a = true} : (tensor<1x2x3x5xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x5x4xf32>
  %o1, %stats = library.attention %q, %k, %v {causal, scale = 5.0e-01 : f64} : tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x2xf32> -> tensor<1x2x3x2xf32>, tensor<1x2x3xf32>
  %dq1, %dk1, %dv1 = library.attention_gradient %q, %k, %v of %o1, %stats from %g {causal, scale = 5.0e-01 : f64} : tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x2xf32> of tensor<1x2x3x2xf32>, tensor<1x2x3xf32> from tensor<1x2x3x2xf32> -> tensor<1x2x3x4xf32>, tensor<1x2x5x4xf32>, tensor<1x2x5x2xf32>
  check.close %o1, %o {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x3x2xf32>
  check.close %stats, %log {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x3xf32>
  check.close %dq1, %dq {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x3x4xf32>
  check.close %dk1, %dk {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x5x4xf32>
  check.close %dv1, %dv {atol = 1.0e-06, rtol = 1.0e-05} : tensor<1x2x5x2xf32>
  return
}

// Two heads of queries share one of keys and values, and probabilities are dropped: by the words that mpt.dropout draws.
func.func @grouped() {
  %q = mpt.constant dense<[[[[-0.8125, -1.3125, -0.25, 0.4375], [1.125, 0.125, -0.5625, -0.8125], [0.75, 1.625, 0.25, -1.25]], [[-0.9375, 1.625, 0.1875, -1.75], [0.0625, -1.1875, -0.625, -0.5], [-0.6875, 0.5625, 0.0625, -0.5625]], [[0.4375, 0.8125, -1.625, -0.25], [-1.0, -0.1875, -1.3125, 0.0], [0.0625, -0.3125, -1.0625, -0.375]], [[-1.0625, -1.375, 0.25, -1.125], [1.1875, 0.6875, -2.0, 0.25], [-1.125, 0.0625, 0.0625, -2.0]]], [[[-0.25, -0.25, 0.9375, -1.1875], [0.75, -1.125, -0.3125, -0.8125], [1.4375, 0.5625, 2.4375, 0.625]], [[0.875, 0.8125, -0.625, 0.0625], [1.375, -0.375, 0.1875, 0.0], [0.625, -0.375, -0.125, 0.25]], [[0.125, -0.875, 0.875, -1.3125], [-1.1875, -1.3125, 0.9375, -0.375], [-1.0, -1.125, 0.4375, -1.0625]], [[-1.25, 0.625, -1.1875, -0.3125], [0.0, -0.4375, 0.0625, 1.3125], [-0.5, -1.25, -1.8125, -0.1875]]]]> : tensor<2x4x3x4xf32>
  %k = mpt.constant dense<[[[[-0.375, 0.25, -0.4375, -0.5], [-0.75, -0.5, 0.1875, -0.375], [0.125, 1.875, 0.5, -1.5625], [1.75, 0.375, -0.9375, 0.9375], [0.0, -0.625, -0.625, -1.0]], [[0.0625, 1.0625, -0.3125, 0.4375], [1.875, -1.1875, 0.25, -0.3125], [-1.0625, -1.0, 0.0, 0.4375], [-0.5625, 0.0625, 0.75, 0.3125], [0.875, 0.4375, 0.5, 1.8125]]], [[[0.625, 0.125, 0.6875, -0.9375], [-0.3125, 0.8125, 0.625, 1.5625], [0.0, -1.4375, 1.9375, 1.0625], [-1.0625, 1.375, 0.0625, -1.8125], [-0.4375, -0.5, 1.5625, -0.8125]], [[-0.25, -0.25, -0.375, -0.9375], [0.25, 1.0625, 0.625, -0.9375], [-1.125, 0.125, -0.6875, -0.625], [-1.6875, 1.9375, 0.9375, -1.0], [0.9375, 1.3125, -2.375, -0.5625]]]]> : tensor<2x2x5x4xf32>
  %v = mpt.constant dense<[[[[-0.375, 0.625], [-0.125, -0.25], [0.0625, 1.875], [2.1875, -0.5], [-0.9375, 2.6875]], [[-1.0, -0.5625], [0.0625, 0.5], [1.0, 0.375], [-0.875, 0.5], [0.25, 1.875]]], [[[0.0, -1.3125], [-1.0625, 1.4375], [-0.5625, -2.125], [-0.5625, 0.0], [1.1875, -1.0]], [[0.6875, 0.8125], [-0.6875, -0.1875], [1.75, 1.75], [0.875, 0.3125], [1.125, -0.125]]]]> : tensor<2x2x5x2xf32>
  %g = mpt.constant dense<[[[[-0.125, -0.875], [0.0, 0.0625], [2.75, -0.1875]], [[1.25, 1.3125], [-0.1875, 1.1875], [-2.1875, 0.125]], [[0.875, -2.375], [-1.1875, 1.0625], [-0.25, -1.125]], [[-0.375, -0.5625], [0.75, 0.4375], [-0.25, -0.6875]]], [[[0.0625, 1.3125], [0.375, 0.625], [-0.125, -1.3125]], [[-0.6875, 0.625], [0.125, -0.875], [-1.625, 0.125]], [[-0.3125, -0.375], [-0.3125, 0.3125], [0.3125, 0.9375]], [[0.9375, 1.3125], [0.8125, -0.3125], [0.0625, 0.5]]]]> : tensor<2x4x3x2xf32>
  %key = mpt.constant dense<[1234567890123, 8589934597]> : tensor<2xi64>
  %scale = mpt.constant dense<0.5> : tensor<2x4x3x5xf32>
  %kb = mpt.broadcast %k {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x5x4xf32>) -> tensor<2x2x2x5x4xf32>
  %vb = mpt.broadcast %v {dims = array<i64: 0, 1, 3, 4>} : (tensor<2x2x5x2xf32>) -> tensor<2x2x2x5x2xf32>
  %kr = mpt.reshape %kb : (tensor<2x2x2x5x4xf32>) -> tensor<2x4x5x4xf32>
  %vr = mpt.reshape %vb : (tensor<2x2x2x5x2xf32>) -> tensor<2x4x5x2xf32>
  %s0 = mpt.matmul %q, %kr {transpose_b = true} : (tensor<2x4x3x4xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x3x5xf32>
  %s = mpt.mul %s0, %scale : tensor<2x4x3x5xf32>
  %p = mpt.softmax %s {axis = 3 : i64} : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %d = mpt.dropout %p, %key {ratio = 0.25 : f64, stream = 3 : i64} : (tensor<2x4x3x5xf32>, tensor<2xi64>) -> tensor<2x4x3x5xf32>
  %o = mpt.matmul %d, %vr : (tensor<2x4x3x5xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x3x2xf32>
  %dd = mpt.matmul %g, %vr {transpose_b = true} : (tensor<2x4x3x2xf32>, tensor<2x4x5x2xf32>) -> tensor<2x4x3x5xf32>
  %dvr = mpt.matmul %d, %g {transpose_a = true} : (tensor<2x4x3x5xf32>, tensor<2x4x3x2xf32>) -> tensor<2x4x5x2xf32>
  %dp = mpt.dropout %dd, %key {ratio = 0.25 : f64, stream = 3 : i64} : (tensor<2x4x3x5xf32>, tensor<2xi64>) -> tensor<2x4x3x5xf32>
  %ds0 = mpt.softmax_backward %dp, %p {axis = 3 : i64} : (tensor<2x4x3x5xf32>, tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %ds = mpt.mul %ds0, %scale : tensor<2x4x3x5xf32>
  %dq = mpt.matmul %ds, %kr : (tensor<2x4x3x5xf32>, tensor<2x4x5x4xf32>) -> tensor<2x4x3x4xf32>
  %dkr = mpt.matmul %ds, %q {transpose_a = true} : (tensor<2x4x3x5xf32>, tensor<2x4x3x4xf32>) -> tensor<2x4x5x4xf32>
  %dk5 = mpt.reshape %dkr : (tensor<2x4x5x4xf32>) -> tensor<2x2x2x5x4xf32>
  %dk = mpt.reduce sum %dk5 {axes = array<i64: 2>} : (tensor<2x2x2x5x4xf32>) -> tensor<2x2x5x4xf32>
  %dv5 = mpt.reshape %dvr : (tensor<2x4x5x2xf32>) -> tensor<2x2x2x5x2xf32>
  %dv = mpt.reduce sum %dv5 {axes = array<i64: 2>} : (tensor<2x2x2x5x2xf32>) -> tensor<2x2x5x2xf32>
  %o1, %stats = library.attention %q, %k, %v dropout %key : tensor<2xi64> {scale = 5.0e-01 : f64, ratio = 0.25 : f64, stream = 3 : i64} : tensor<2x4x3x4xf32>, tensor<2x2x5x4xf32>, tensor<2x2x5x2xf32> -> tensor<2x4x3x2xf32>, tensor<2x4x3xf32>
  %dq1, %dk1, %dv1 = library.attention_gradient %q, %k, %v dropout %key : tensor<2xi64> of %o1, %stats from %g {scale = 5.0e-01 : f64, ratio = 0.25 : f64, stream = 3 : i64} : tensor<2x4x3x4xf32>, tensor<2x2x5x4xf32>, tensor<2x2x5x2xf32> of tensor<2x4x3x2xf32>, tensor<2x4x3xf32> from tensor<2x4x3x2xf32> -> tensor<2x4x3x4xf32>, tensor<2x2x5x4xf32>, tensor<2x2x5x2xf32>
  check.close %o1, %o {atol = 1.0e-06, rtol = 1.0e-05} : tensor<2x4x3x2xf32>
  check.close %dq1, %dq {atol = 2.0e-06, rtol = 1.0e-05} : tensor<2x4x3x4xf32>
  check.close %dk1, %dk {atol = 2.0e-06, rtol = 1.0e-05} : tensor<2x2x5x4xf32>
  check.close %dv1, %dv {atol = 2.0e-06, rtol = 1.0e-05} : tensor<2x2x5x2xf32>
  return
}
