// RUN: mpt-run %s
// library.gemm beside the core ops that it stands for.

func.func @round_bias_relu() {
  %a = mpt.constant dense<[[1.5, -2.25, 0.125, 3.0], [0.75, 1.0, -1.5, 0.5]]> : tensor<2x4xbf16>
  %b = mpt.constant dense<[[1.0, 0.3], [-0.7, 2.1], [0.9, -1.1], [0.2, 0.6]]> : tensor<4x2xbf16>
  %bias = mpt.constant dense<[0.0123, -9.5]> : tensor<2xbf16>
  %d = library.gemm %a, %b bias %bias : tensor<2xbf16> {epilogue = #library.epilogue<activation = relu, round = true>} : tensor<2x4xbf16>, tensor<4x2xbf16> -> tensor<2x2xbf16>
  %m = mpt.matmul %a, %b : (tensor<2x4xbf16>, tensor<4x2xbf16>) -> tensor<2x2xbf16>
  %v = mpt.broadcast %bias {dims = array<i64: 1>} : (tensor<2xbf16>) -> tensor<2x2xbf16>
  %s = mpt.add %m, %v : tensor<2x2xbf16>
  %r = mpt.relu %s : tensor<2x2xbf16>
  check.equal %d, %r : tensor<2x2xbf16>
  return
}

// One rounding at the end: of the activation, and of the sum before it.
func.func @gelu_and_its_gradient() {
  %a = mpt.constant dense<[[1.5, -2.25, 0.125, 3.0], [0.75, 1.0, -1.5, 0.5]]> : tensor<2x4xf16>
  %b = mpt.constant dense<[[1.0, 0.3], [-0.7, 2.1], [0.9, -1.1], [0.2, 0.6]]> : tensor<4x2xf16>
  %bias = mpt.constant dense<[0.0123, -0.5]> : tensor<2xf16>
  %d, %kept = library.gemm %a, %b bias %bias : tensor<2xf16> {epilogue = #library.epilogue<activation = gelu_tanh, keep = true>} : tensor<2x4xf16>, tensor<4x2xf16> -> tensor<2x2xf16> kept tensor<2x2xf16>
  %m = mpt.matmul %a, %b : (tensor<2x4xf16>, tensor<4x2xf16>) -> tensor<2x2xf32>
  %wide = mpt.cast %bias : tensor<2xf16> to tensor<2xf32>
  %v = mpt.broadcast %wide {dims = array<i64: 1>} : (tensor<2xf32>) -> tensor<2x2xf32>
  %s = mpt.add %m, %v : tensor<2x2xf32>
  %g = mpt.gelu %s {form = #mpt<gelu_form tanh>} : tensor<2x2xf32>
  %s16 = mpt.cast %s : tensor<2x2xf32> to tensor<2x2xf16>
  %g16 = mpt.cast %g : tensor<2x2xf32> to tensor<2x2xf16>
  check.equal %kept, %s16 : tensor<2x2xf16>
  check.equal %d, %g16 : tensor<2x2xf16>
  %dz, %db = library.gemm %a, %b aux %kept : tensor<2x2xf16> {epilogue = #library.epilogue<activation = gelu_tanh_gradient, sum = d>} : tensor<2x4xf16>, tensor<4x2xf16> -> tensor<2x2xf16> sums tensor<2xf16>
  %at = mpt.cast %kept : tensor<2x2xf16> to tensor<2x2xf32>
  %slope = mpt.gelu_backward %m, %at {form = #mpt<gelu_form tanh>} : tensor<2x2xf32>
  %dz16 = mpt.cast %slope : tensor<2x2xf32> to tensor<2x2xf16>
  %db16 = mpt.reduce sum %dz16 {axes = array<i64: 0>} : (tensor<2x2xf16>) -> tensor<2xf16>
  check.equal %dz, %dz16 : tensor<2x2xf16>
  check.equal %db, %db16 : tensor<2xf16>
  return
}

func.func @sums() {
  %a = mpt.constant dense<[[1.5, -2.25], [0.125, 3.0], [0.75, 1.0]]> : tensor<3x2xbf16>
  %b = mpt.constant dense<[[1.0, 0.5, 2.0], [0.25, -3.0, 1.0], [0.5, 1.5, -1.0]]> : tensor<3x3xbf16>
  %d0, %rows = library.gemm %a, %b {epilogue = #library.epilogue<sum = a>, transpose_a = true} : tensor<3x2xbf16>, tensor<3x3xbf16> -> tensor<2x3xf32> sums tensor<2xf32>
  %d1, %columns = library.gemm %a, %b {epilogue = #library.epilogue<sum = b>, transpose_a = true, transpose_b = true} : tensor<3x2xbf16>, tensor<3x3xbf16> -> tensor<2x3xf32> sums tensor<3xf32>
  %of_a = mpt.constant dense<[2.375, 1.75]> : tensor<2xf32>
  %of_b = mpt.constant dense<[3.5, -1.75, 1.0]> : tensor<3xf32>
  check.equal %rows, %of_a : tensor<2xf32>
  check.equal %columns, %of_b : tensor<3xf32>
  %m = mpt.matmul %a, %b {transpose_a = true} : (tensor<3x2xbf16>, tensor<3x3xbf16>) -> tensor<2x3xf32>
  check.equal %d0, %m : tensor<2x3xf32>
  return
}

func.func @scales() {
  %a = mpt.constant dense<[[1.5, -2.0], [0.125, 3.0]]> : tensor<2x2xf16>
  %b = mpt.constant dense<[[1.0, 0.5], [0.25, -3.0]]> : tensor<2x2xf16>
  %two = mpt.constant dense<2.0> : tensor<f32>
  %three = mpt.constant dense<3.0> : tensor<f32>
  %plain = library.gemm %a, %b : tensor<2x2xf16>, tensor<2x2xf16> -> tensor<2x2xf32>
  %m = mpt.matmul %a, %b : (tensor<2x2xf16>, tensor<2x2xf16>) -> tensor<2x2xf32>
  check.equal %plain, %m : tensor<2x2xf32>
  %operands = library.gemm %a, %b operand_scales %two, %three : tensor<f32>, tensor<f32> {alpha = 0.5 : f64} : tensor<2x2xf16>, tensor<2x2xf16> -> tensor<2x2xf32>
  %result = library.gemm %a, %b scale %three : tensor<f32> : tensor<2x2xf16>, tensor<2x2xf16> -> tensor<2x2xf32>
  %f = mpt.broadcast %three {dims = array<i64>} : (tensor<f32>) -> tensor<2x2xf32>
  %tripled = mpt.mul %m, %f : tensor<2x2xf32>
  check.equal %operands, %tripled : tensor<2x2xf32>
  check.equal %result, %tripled : tensor<2x2xf32>
  return
}
