// RUN: mpt-run %s
// Recurrences against their formulas in float64, and gradients against PyTorch's of the same formulas; gates and cell states are FP32.

func.func @lstm() {
  %x = mpt.constant dense<[[[0.875, 0.875, 0.0, -0.625, -1.375, -0.375, -0.25, -1.375]], [[-1.375, 1.5, 0.5, -0.75, -0.25, 1.375, 1.25, 1.0]]]> : tensor<2x1x8xf32>
  %r = mpt.constant dense<[[-0.375, -0.0], [0.5, -1.375], [0.125, -0.625], [1.125, -1.25], [0.5, 1.125], [-0.875, 1.125], [1.125, -1.5], [0.625, -1.5]]> : tensor<8x2xf32>
  %h0 = mpt.constant dense<[[0.0, -0.25]]> : tensor<1x2xf32>
  %c0 = mpt.constant dense<[[-0.875, -0.5]]> : tensor<1x2xf32>
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<2x1x8xf32>, tensor<8x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> (tensor<2x1x2xf32>, tensor<2x1x8xf32>, tensor<2x1x2xf32>)
  %dy = mpt.constant dense<[[[0.875, -0.5]], [[-1.0, 0.625]]]> : tensor<2x1x2xf32>
  %dc = mpt.constant dense<[[[-0.125, 0.875]], [[-0.75, -0.5]]]> : tensor<2x1x2xf32>
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0, %dc : (tensor<2x1x2xf32>, tensor<8x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>, tensor<2x1x8xf32>, tensor<2x1x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>) -> (tensor<2x1x8xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
  %e_y = mpt.constant dense<[[[-0.028252533, -0.27051494]], [[0.110786445, 0.07531157]]]> : tensor<2x1x2xf32>
  check.close %y, %e_y {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_gates = mpt.constant dense<[[[0.70578504, 0.7718435, 0.5389832, 0.42250463, 0.16026603, 0.3415825, 0.124353, -0.7615942]], [[0.20352526, 0.865044, 0.6605038, 0.39087388, 0.36159328, 0.74939567, 0.9252007, 0.8827554]]]> : tensor<2x1x8xf32>
  check.close %gates, %e_gates {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x8xf32>
  %e_cells = mpt.constant dense<[[[-0.052466292, -0.75862277]], [[0.16933025, 0.19511369]]]> : tensor<2x1x2xf32>
  check.close %cells, %e_cells {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_dx = mpt.constant dense<[[[-0.00421687, -0.08150031, -0.011268131, 0.043176256, 0.019230384, -0.06833458, -0.11347518, 0.19698155]], [[-0.208757, -0.027286284, -0.037611574, 0.028671404, 0.016858267, 0.037722398, -0.040794984, -0.050559025]]]> : tensor<2x1x8xf32>
  check.close %dx, %e_dx {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x8xf32>
  %e_dh0 = mpt.constant dense<[[0.072857775, -0.11536658]]> : tensor<1x2xf32>
  check.close %dh0, %e_dh0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  %e_dc0 = mpt.constant dense<[[-0.026172077, 0.20757218]]> : tensor<1x2xf32>
  check.close %dc0, %e_dc0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  return
}

func.func @lstm_reverse() {
  %x = mpt.constant dense<[[[0.875, 0.0, 0.0, -0.75, -1.5, 1.25, -1.25, 1.0]], [[-0.375, 1.375, -0.25, 1.25, 0.125, -0.75, 0.75, 0.5]]]> : tensor<2x1x8xf32>
  %r = mpt.constant dense<[[0.5, -0.125], [-0.875, 0.375], [-1.125, 0.625], [0.375, -0.375], [0.875, -0.875], [-0.375, 0.875], [-0.375, 0.625], [0.375, 1.375]]> : tensor<8x2xf32>
  %h0 = mpt.constant dense<[[1.5, 0.625]]> : tensor<1x2xf32>
  %c0 = mpt.constant dense<[[0.875, -1.0]]> : tensor<1x2xf32>
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 {reverse} : (tensor<2x1x8xf32>, tensor<8x2xf32>, tensor<1x2xf32>, tensor<1x2xf32>) -> (tensor<2x1x2xf32>, tensor<2x1x8xf32>, tensor<2x1x2xf32>)
  %dy = mpt.constant dense<[[[0.625, 1.0]], [[-0.25, 0.125]]]> : tensor<2x1x2xf32>
  %dc = mpt.constant dense<[[[-0.0, 1.375]], [[-0.5, -0.25]]]> : tensor<2x1x2xf32>
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0, %dc {reverse} : (tensor<2x1x2xf32>, tensor<8x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>, tensor<2x1x8xf32>, tensor<2x1x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>) -> (tensor<2x1x8xf32>, tensor<1x2xf32>, tensor<1x2xf32>)
  %e_y = mpt.constant dense<[[[-0.20023175, 0.17142679]], [[0.12737703, 0.18909226]]]> : tensor<2x1x2xf32>
  check.close %y, %e_y {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_gates = mpt.constant dense<[[[0.7140328, 0.48986506, 0.49372122, 0.31579956, 0.17450917, 0.79700655, -0.8273203, 0.8637096]], [[0.57367843, 0.57367843, 0.17553808, 0.8289388, 0.7090191, 0.31742626, 0.5213013, 0.95807153]]]> : tensor<2x1x8xf32>
  check.close %gates, %e_gates {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x8xf32>
  %e_cells = mpt.constant dense<[[[-0.43028122, 0.608165]], [[0.91945106, 0.23219867]]]> : tensor<2x1x2xf32>
  check.close %cells, %e_cells {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_dx = mpt.constant dense<[[[-0.043554075, 0.3448548, -0.06335818, 0.11729028, 0.03414915, 0.06002202, 0.058089137, 0.19880481]], [[-0.062229883, 0.3334284, -0.041809842, 0.016447574, -0.088111944, -0.3083126, -0.20391554, 0.067020096]]]> : tensor<2x1x8xf32>
  check.close %dx, %e_dx {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x8xf32>
  %e_dh0 = mpt.constant dense<[[-0.12954076, -0.12745476]]> : tensor<1x2xf32>
  check.close %dh0, %e_dh0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  %e_dc0 = mpt.constant dense<[[-0.34606868, 0.45169127]]> : tensor<1x2xf32>
  check.close %dc0, %e_dc0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  return
}

func.func @gru() {
  %x = mpt.constant dense<[[[-1.5, -0.25, 0.375, 1.25, 1.25, -0.5]], [[1.5, -0.875, 1.0, -1.0, -0.25, -1.25]]]> : tensor<2x1x6xf32>
  %r = mpt.constant dense<[[1.125, 1.0], [-1.125, 0.125], [-0.75, -0.0], [0.125, -1.125], [1.125, -0.625], [-0.125, -1.375]]> : tensor<6x2xf32>
  %h0 = mpt.constant dense<[[-1.5, -0.875]]> : tensor<1x2xf32>
  %b = mpt.constant dense<[-0.5, 1.25]> : tensor<2xf32>
  %y, %gates = mpt.recurrence gru %x, %r, %h0, %b : (tensor<2x1x6xf32>, tensor<6x2xf32>, tensor<1x2xf32>, tensor<2xf32>) -> (tensor<2x1x2xf32>, tensor<2x1x8xf32>)
  %dy = mpt.constant dense<[[[1.125, -0.0]], [[-0.125, 0.5]]]> : tensor<2x1x2xf32>
  %dx, %dh0, %dinside = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates : (tensor<2x1x2xf32>, tensor<6x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>, tensor<2x1x8xf32>) -> (tensor<2x1x6xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>)
  %e_y = mpt.constant dense<[[[-0.11491177, -0.49257904]], [[-0.21459082, -0.47080782]]]> : tensor<2x1x2xf32>
  check.close %y, %e_y {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_gates = mpt.constant dense<[[[0.016914913, 0.7905303, 0.8175745, 0.8856315, -0.09108001, 0.95066255, -1.640625, 2.640625]], [[0.7064377, 0.30846685, 0.7476624, 0.3869354, -0.4544617, -0.46109647, -0.32141384, 1.9416602]]]> : tensor<2x1x8xf32>
  check.close %gates, %e_gates {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x8xf32>
  %e_dx = mpt.constant dense<[[[-0.0235988, 0.038485955, -0.24029145, -0.00068641733, 0.98201036, -0.0025663858]], [[-0.00880213, -0.0033578526, 0.0017655899, 0.12539807, -0.029116409, 0.27225316]]]> : tensor<2x1x6xf32>
  check.close %dx, %e_dx {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x6xf32>
  %e_dh0 = mpt.constant dense<[[1.0308342, -0.61731994]]> : tensor<1x2xf32>
  check.close %dh0, %e_dh0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  %e_dinside = mpt.constant dense<[[[0.8028666, -0.002272872]], [[-0.021769244, 0.105344385]]]> : tensor<2x1x2xf32>
  check.close %dinside, %e_dinside {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  return
}

func.func @tanh_reverse() {
  %x = mpt.constant dense<[[[0.25, 0.75]], [[0.0, 0.625]]]> : tensor<2x1x2xf32>
  %r = mpt.constant dense<[[0.625, -1.5], [-1.375, -1.0]]> : tensor<2x2xf32>
  %h0 = mpt.constant dense<[[-0.875, -0.875]]> : tensor<1x2xf32>
  %y = mpt.recurrence tanh %x, %r, %h0 {reverse} : (tensor<2x1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x1x2xf32>
  %dy = mpt.constant dense<[[[-1.375, -0.875]], [[0.25, 1.125]]]> : tensor<2x1x2xf32>
  %dx, %dh0 = mpt.recurrence_backward tanh %dy, %r, %h0, %y {reverse} : (tensor<2x1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>) -> (tensor<2x1x2xf32>, tensor<1x2xf32>)
  %e_y = mpt.constant dense<[[[-0.6825424, -0.81001866]], [[0.64437824, 0.99106324]]]> : tensor<2x1x2xf32>
  check.close %y, %e_y {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_dx = mpt.constant dense<[[[-0.73443687, -0.30088603]], [[0.11970099, 0.04497424]]]> : tensor<2x1x2xf32>
  check.close %dx, %e_dx {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_dh0 = mpt.constant dense<[[0.0129735395, -0.22452572]]> : tensor<1x2xf32>
  check.close %dh0, %e_dh0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  return
}

func.func @relu() {
  %x = mpt.constant dense<[[[0.875, 1.375]], [[-0.375, 0.625]]]> : tensor<2x1x2xf32>
  %r = mpt.constant dense<[[-0.5, 1.0], [-0.75, 1.125]]> : tensor<2x2xf32>
  %h0 = mpt.constant dense<[[0.0, 0.625]]> : tensor<1x2xf32>
  %y = mpt.recurrence relu %x, %r, %h0 : (tensor<2x1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<2x1x2xf32>
  %dy = mpt.constant dense<[[[0.125, -0.5]], [[-0.0, -1.375]]]> : tensor<2x1x2xf32>
  %dx, %dh0 = mpt.recurrence_backward relu %dy, %r, %h0, %y : (tensor<2x1x2xf32>, tensor<2x2xf32>, tensor<1x2xf32>, tensor<2x1x2xf32>) -> (tensor<2x1x2xf32>, tensor<1x2xf32>)
  %e_y = mpt.constant dense<[[[1.5, 2.078125]], [[0.953125, 1.8378906]]]> : tensor<2x1x2xf32>
  check.close %y, %e_y {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_dx = mpt.constant dense<[[[1.15625, -2.046875]], [[0.0, -1.375]]]> : tensor<2x1x2xf32>
  check.close %dx, %e_dx {atol = 2.0e-06, rtol = 2.0e-06} : tensor<2x1x2xf32>
  %e_dh0 = mpt.constant dense<[[0.95703125, -1.1464844]]> : tensor<1x2xf32>
  check.close %dh0, %e_dh0 {atol = 2.0e-06, rtol = 2.0e-06} : tensor<1x2xf32>
  return
}

// BF16 states: the cell state stays FP32, and GEMMs read the rounded state.
func.func @narrow() {
  %x = mpt.constant dense<0.0> : tensor<2x1x4xbf16>
  %r = mpt.constant dense<[[0.0], [0.0], [0.0], [1.0]]> : tensor<4x1xbf16>
  %h0 = mpt.constant dense<0.0> : tensor<1x1xbf16>
  %c0 = mpt.constant dense<1.00390625> : tensor<1x1xf32>
  // All gates are 1/2: c = 1/2 c0 + 1/2 tanh(h), h = 1/2 tanh(c); 1.00390625 is no BF16 number.
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<2x1x4xbf16>, tensor<4x1xbf16>, tensor<1x1xbf16>, tensor<1x1xf32>) -> (tensor<2x1x1xbf16>, tensor<2x1x4xbf16>, tensor<2x1x1xf32>)
  %e_y = mpt.constant dense<[[[0.2314453125]], [[0.1748046875]]]> : tensor<2x1x1xbf16>
  %e_cells = mpt.constant dense<[[[0.501953125]], [[0.36467623710632324]]]> : tensor<2x1x1xf32>
  check.close %cells, %e_cells {atol = 1.0e-06, rtol = 1.0e-06} : tensor<2x1x1xf32>
  check.equal %y, %e_y : tensor<2x1x1xbf16>
  return
}
