// Recurrences of extents that no tile divides, and of more rows than are kept at a time.
func.func @lstm_odd(%x: tensor<7x5x148xf64>, %r: tensor<148x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>, %c0: tensor<5x37xf64>) -> (tensor<7x5x37xf64>, tensor<7x5x148xf64>, tensor<7x5x37xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<7x5x148xf64>, tensor<148x37xf64>, tensor<5x37xf64>, tensor<5x37xf64>) -> (tensor<7x5x37xf64>, tensor<7x5x148xf64>, tensor<7x5x37xf64>)
  return %y, %gates, %cells : tensor<7x5x37xf64>, tensor<7x5x148xf64>, tensor<7x5x37xf64>
}
func.func @lstm_rows(%x: tensor<3x51x136xf64>, %r: tensor<136x34xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<51x34xf64>, %c0: tensor<51x34xf64>) -> (tensor<3x51x34xf64>, tensor<3x51x136xf64>, tensor<3x51x34xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 {reverse} : (tensor<3x51x136xf64>, tensor<136x34xf64>, tensor<51x34xf64>, tensor<51x34xf64>) -> (tensor<3x51x34xf64>, tensor<3x51x136xf64>, tensor<3x51x34xf64>)
  return %y, %gates, %cells : tensor<3x51x34xf64>, tensor<3x51x136xf64>, tensor<3x51x34xf64>
}
func.func @lstm_wide(%x: tensor<4x33x256xf64>, %r: tensor<256x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %c0: tensor<33x64xf64>) -> (tensor<4x33x64xf64>, tensor<4x33x256xf64>, tensor<4x33x64xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<4x33x256xf64>, tensor<256x64xf64>, tensor<33x64xf64>, tensor<33x64xf64>) -> (tensor<4x33x64xf64>, tensor<4x33x256xf64>, tensor<4x33x64xf64>)
  return %y, %gates, %cells : tensor<4x33x64xf64>, tensor<4x33x256xf64>, tensor<4x33x64xf64>
}
func.func @lstm_deep(%x: tensor<2x17x1280xf64>, %r: tensor<1280x320xf64> {check.low = -0.05, check.high = 0.05}, %h0: tensor<17x320xf64>, %c0: tensor<17x320xf64>) -> (tensor<2x17x320xf64>, tensor<2x17x1280xf64>, tensor<2x17x320xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<2x17x1280xf64>, tensor<1280x320xf64>, tensor<17x320xf64>, tensor<17x320xf64>) -> (tensor<2x17x320xf64>, tensor<2x17x1280xf64>, tensor<2x17x320xf64>)
  return %y, %gates, %cells : tensor<2x17x320xf64>, tensor<2x17x1280xf64>, tensor<2x17x320xf64>
}
func.func @lstm_backward_odd(%dy: tensor<7x5x37xf64>, %r: tensor<148x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>, %y: tensor<7x5x37xf64>, %gates: tensor<7x5x148xf64> {check.low = 0.1, check.high = 0.9}, %cells: tensor<7x5x37xf64>, %c0: tensor<5x37xf64>, %dcells: tensor<7x5x37xf64>) -> (tensor<7x5x148xf64>, tensor<5x37xf64>, tensor<5x37xf64>) {
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0, %dcells : (tensor<7x5x37xf64>, tensor<148x37xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>, tensor<7x5x148xf64>, tensor<7x5x37xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>) -> (tensor<7x5x148xf64>, tensor<5x37xf64>, tensor<5x37xf64>)
  return %dx, %dh0, %dc0 : tensor<7x5x148xf64>, tensor<5x37xf64>, tensor<5x37xf64>
}
func.func @lstm_backward_rows(%dy: tensor<3x51x34xf64>, %r: tensor<136x34xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<51x34xf64>, %y: tensor<3x51x34xf64>, %gates: tensor<3x51x136xf64> {check.low = 0.1, check.high = 0.9}, %cells: tensor<3x51x34xf64>, %c0: tensor<51x34xf64>) -> (tensor<3x51x136xf64>, tensor<51x34xf64>, tensor<51x34xf64>) {
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0 {reverse} : (tensor<3x51x34xf64>, tensor<136x34xf64>, tensor<51x34xf64>, tensor<3x51x34xf64>, tensor<3x51x136xf64>, tensor<3x51x34xf64>, tensor<51x34xf64>) -> (tensor<3x51x136xf64>, tensor<51x34xf64>, tensor<51x34xf64>)
  return %dx, %dh0, %dc0 : tensor<3x51x136xf64>, tensor<51x34xf64>, tensor<51x34xf64>
}
func.func @lstm_backward_wide(%dy: tensor<4x33x64xf64>, %r: tensor<256x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %y: tensor<4x33x64xf64>, %gates: tensor<4x33x256xf64> {check.low = 0.1, check.high = 0.9}, %cells: tensor<4x33x64xf64>, %c0: tensor<33x64xf64>) -> (tensor<4x33x256xf64>, tensor<33x64xf64>, tensor<33x64xf64>) {
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0 : (tensor<4x33x64xf64>, tensor<256x64xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>, tensor<4x33x256xf64>, tensor<4x33x64xf64>, tensor<33x64xf64>) -> (tensor<4x33x256xf64>, tensor<33x64xf64>, tensor<33x64xf64>)
  return %dx, %dh0, %dc0 : tensor<4x33x256xf64>, tensor<33x64xf64>, tensor<33x64xf64>
}
func.func @gru_odd(%x: tensor<7x5x111xf64>, %r: tensor<111x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>, %b: tensor<37xf64>) -> (tensor<7x5x37xf64>, tensor<7x5x148xf64>) {
  %y, %gates = mpt.recurrence gru %x, %r, %h0, %b {reverse} : (tensor<7x5x111xf64>, tensor<111x37xf64>, tensor<5x37xf64>, tensor<37xf64>) -> (tensor<7x5x37xf64>, tensor<7x5x148xf64>)
  return %y, %gates : tensor<7x5x37xf64>, tensor<7x5x148xf64>
}
func.func @gru_wide(%x: tensor<4x33x192xf64>, %r: tensor<192x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %b: tensor<64xf64>) -> (tensor<4x33x64xf64>, tensor<4x33x256xf64>) {
  %y, %gates = mpt.recurrence gru %x, %r, %h0, %b : (tensor<4x33x192xf64>, tensor<192x64xf64>, tensor<33x64xf64>, tensor<64xf64>) -> (tensor<4x33x64xf64>, tensor<4x33x256xf64>)
  return %y, %gates : tensor<4x33x64xf64>, tensor<4x33x256xf64>
}
func.func @gru_backward_odd(%dy: tensor<7x5x37xf64>, %r: tensor<111x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>, %y: tensor<7x5x37xf64>, %gates: tensor<7x5x148xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<7x5x111xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>) {
  %dx, %dh0, %inside = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates : (tensor<7x5x37xf64>, tensor<111x37xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>, tensor<7x5x148xf64>) -> (tensor<7x5x111xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>)
  return %dx, %dh0, %inside : tensor<7x5x111xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>
}
func.func @gru_backward_wide(%dy: tensor<4x33x64xf64>, %r: tensor<192x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %y: tensor<4x33x64xf64>, %gates: tensor<4x33x256xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<4x33x192xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>) {
  %dx, %dh0, %inside = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates {reverse} : (tensor<4x33x64xf64>, tensor<192x64xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>, tensor<4x33x256xf64>) -> (tensor<4x33x192xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>)
  return %dx, %dh0, %inside : tensor<4x33x192xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>
}
func.func @tanh_odd(%x: tensor<7x5x37xf64>, %r: tensor<37x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>) -> tensor<7x5x37xf64> {
  %y = mpt.recurrence tanh %x, %r, %h0 : (tensor<7x5x37xf64>, tensor<37x37xf64>, tensor<5x37xf64>) -> tensor<7x5x37xf64>
  return %y : tensor<7x5x37xf64>
}
func.func @tanh_backward_wide(%dy: tensor<4x33x64xf64>, %r: tensor<64x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %y: tensor<4x33x64xf64>) -> (tensor<4x33x64xf64>, tensor<33x64xf64>) {
  %dx, %dh0 = mpt.recurrence_backward tanh %dy, %r, %h0, %y : (tensor<4x33x64xf64>, tensor<64x64xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>) -> (tensor<4x33x64xf64>, tensor<33x64xf64>)
  return %dx, %dh0 : tensor<4x33x64xf64>, tensor<33x64xf64>
}
func.func @relu_odd(%x: tensor<5x5x37xf64>, %r: tensor<37x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>) -> tensor<5x5x37xf64> {
  %y = mpt.recurrence relu %x, %r, %h0 {reverse} : (tensor<5x5x37xf64>, tensor<37x37xf64>, tensor<5x37xf64>) -> tensor<5x5x37xf64>
  return %y : tensor<5x5x37xf64>
}
func.func @relu_backward_wide(%dy: tensor<4x33x64xf64>, %r: tensor<64x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %y: tensor<4x33x64xf64>) -> (tensor<4x33x64xf64>, tensor<33x64xf64>) {
  %dx, %dh0 = mpt.recurrence_backward relu %dy, %r, %h0, %y : (tensor<4x33x64xf64>, tensor<64x64xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>) -> (tensor<4x33x64xf64>, tensor<33x64xf64>)
  return %dx, %dh0 : tensor<4x33x64xf64>, tensor<33x64xf64>
}
func.func @gru_reset_first_odd(%x: tensor<7x5x111xf64>, %r: tensor<111x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>) -> (tensor<7x5x37xf64>, tensor<7x5x111xf64>, tensor<7x5x37xf64>) {
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h0 {reverse} : (tensor<7x5x111xf64>, tensor<111x37xf64>, tensor<5x37xf64>) -> (tensor<7x5x37xf64>, tensor<7x5x111xf64>, tensor<7x5x37xf64>)
  return %y, %gates, %kept : tensor<7x5x37xf64>, tensor<7x5x111xf64>, tensor<7x5x37xf64>
}
func.func @gru_reset_first_wide(%x: tensor<4x33x192xf64>, %r: tensor<192x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>) -> (tensor<4x33x64xf64>, tensor<4x33x192xf64>, tensor<4x33x64xf64>) {
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h0 : (tensor<4x33x192xf64>, tensor<192x64xf64>, tensor<33x64xf64>) -> (tensor<4x33x64xf64>, tensor<4x33x192xf64>, tensor<4x33x64xf64>)
  return %y, %gates, %kept : tensor<4x33x64xf64>, tensor<4x33x192xf64>, tensor<4x33x64xf64>
}
func.func @gru_reset_first_backward_odd(%dy: tensor<7x5x37xf64>, %r: tensor<111x37xf64> {check.low = -0.2, check.high = 0.2}, %h0: tensor<5x37xf64>, %y: tensor<7x5x37xf64>, %gates: tensor<7x5x111xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<7x5x111xf64>, tensor<5x37xf64>) {
  %dx, %dh0 = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates : (tensor<7x5x37xf64>, tensor<111x37xf64>, tensor<5x37xf64>, tensor<7x5x37xf64>, tensor<7x5x111xf64>) -> (tensor<7x5x111xf64>, tensor<5x37xf64>)
  return %dx, %dh0 : tensor<7x5x111xf64>, tensor<5x37xf64>
}
func.func @gru_reset_first_backward_wide(%dy: tensor<4x33x64xf64>, %r: tensor<192x64xf64> {check.low = -0.15, check.high = 0.15}, %h0: tensor<33x64xf64>, %y: tensor<4x33x64xf64>, %gates: tensor<4x33x192xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<4x33x192xf64>, tensor<33x64xf64>) {
  %dx, %dh0 = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates {reverse} : (tensor<4x33x64xf64>, tensor<192x64xf64>, tensor<33x64xf64>, tensor<4x33x64xf64>, tensor<4x33x192xf64>) -> (tensor<4x33x192xf64>, tensor<33x64xf64>)
  return %dx, %dh0 : tensor<4x33x192xf64>, tensor<33x64xf64>
}
