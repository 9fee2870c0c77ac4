// Recurrences: all cells, both ways, and which results a gradient reaches. Gradients of saved gates take the way through the decomposition.
func.func @lstm(%x: tensor<3x2x8xf64>, %r: tensor<8x2xf64>, %h0: tensor<2x2xf64>, %c0: tensor<2x2xf64>) -> tensor<3x2x2xf64> {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<3x2x8xf64>, tensor<8x2xf64>, tensor<2x2xf64>, tensor<2x2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x8xf64>, tensor<3x2x2xf64>)
  return %y : tensor<3x2x2xf64>
}
func.func @lstm_reverse_cells(%x: tensor<3x2x8xf64>, %r: tensor<8x2xf64>, %h0: tensor<2x2xf64>, %c0: tensor<2x2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x2xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 {reverse} : (tensor<3x2x8xf64>, tensor<8x2xf64>, tensor<2x2xf64>, tensor<2x2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x8xf64>, tensor<3x2x2xf64>)
  return %y, %cells : tensor<3x2x2xf64>, tensor<3x2x2xf64>
}
func.func @lstm_cells_alone(%x: tensor<2x1x8xf64>, %r: tensor<8x2xf64>, %h0: tensor<1x2xf64>, %c0: tensor<1x2xf64>) -> tensor<2x1x2xf64> {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<2x1x8xf64>, tensor<8x2xf64>, tensor<1x2xf64>, tensor<1x2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x8xf64>, tensor<2x1x2xf64>)
  return %cells : tensor<2x1x2xf64>
}
func.func @lstm_gates(%x: tensor<2x1x8xf64>, %r: tensor<8x2xf64>, %h0: tensor<1x2xf64>, %c0: tensor<1x2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x8xf64>, tensor<2x1x2xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<2x1x8xf64>, tensor<8x2xf64>, tensor<1x2xf64>, tensor<1x2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x8xf64>, tensor<2x1x2xf64>)
  return %y, %gates, %cells : tensor<2x1x2xf64>, tensor<2x1x8xf64>, tensor<2x1x2xf64>
}
func.func @lstm_one_step(%x: tensor<1x2x12xf64>, %r: tensor<12x3xf64>, %h0: tensor<2x3xf64>, %c0: tensor<2x3xf64>) -> (tensor<1x2x3xf64>, tensor<1x2x3xf64>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<1x2x12xf64>, tensor<12x3xf64>, tensor<2x3xf64>, tensor<2x3xf64>) -> (tensor<1x2x3xf64>, tensor<1x2x12xf64>, tensor<1x2x3xf64>)
  return %y, %cells : tensor<1x2x3xf64>, tensor<1x2x3xf64>
}
func.func @gru(%x: tensor<3x2x6xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>, %b: tensor<2xf64>) -> tensor<3x2x2xf64> {
  %y, %gates = mpt.recurrence gru %x, %r, %h0, %b : (tensor<3x2x6xf64>, tensor<6x2xf64>, tensor<2x2xf64>, tensor<2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x8xf64>)
  return %y : tensor<3x2x2xf64>
}
func.func @gru_reverse(%x: tensor<3x2x6xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>, %b: tensor<2xf64>) -> tensor<3x2x2xf64> {
  %y, %gates = mpt.recurrence gru %x, %r, %h0, %b {reverse} : (tensor<3x2x6xf64>, tensor<6x2xf64>, tensor<2x2xf64>, tensor<2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x8xf64>)
  return %y : tensor<3x2x2xf64>
}
func.func @gru_gates(%x: tensor<2x1x6xf64>, %r: tensor<6x2xf64>, %h0: tensor<1x2xf64>, %b: tensor<2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x8xf64>) {
  %y, %gates = mpt.recurrence gru %x, %r, %h0, %b : (tensor<2x1x6xf64>, tensor<6x2xf64>, tensor<1x2xf64>, tensor<2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x8xf64>)
  return %y, %gates : tensor<2x1x2xf64>, tensor<2x1x8xf64>
}
func.func @rnn_tanh(%x: tensor<3x2x3xf64>, %r: tensor<3x3xf64>, %h0: tensor<2x3xf64>) -> tensor<3x2x3xf64> {
  %y = mpt.recurrence tanh %x, %r, %h0 : (tensor<3x2x3xf64>, tensor<3x3xf64>, tensor<2x3xf64>) -> tensor<3x2x3xf64>
  return %y : tensor<3x2x3xf64>
}
func.func @rnn_tanh_reverse(%x: tensor<3x2x3xf64>, %r: tensor<3x3xf64>, %h0: tensor<2x3xf64>) -> tensor<3x2x3xf64> {
  %y = mpt.recurrence tanh %x, %r, %h0 {reverse} : (tensor<3x2x3xf64>, tensor<3x3xf64>, tensor<2x3xf64>) -> tensor<3x2x3xf64>
  return %y : tensor<3x2x3xf64>
}
func.func @rnn_relu(%x: tensor<2x2x3xf64>, %r: tensor<3x3xf64>, %h0: tensor<2x3xf64>) -> tensor<2x2x3xf64> {
  %y = mpt.recurrence relu %x, %r, %h0 : (tensor<2x2x3xf64>, tensor<3x3xf64>, tensor<2x3xf64>) -> tensor<2x2x3xf64>
  return %y : tensor<2x2x3xf64>
}
func.func @lstm_backward(%dy: tensor<3x2x2xf64>, %r: tensor<8x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<3x2x2xf64>, %gates: tensor<3x2x8xf64> {check.low = 0.1, check.high = 0.9}, %cells: tensor<3x2x2xf64>, %c0: tensor<2x2xf64>) -> (tensor<3x2x8xf64>, tensor<2x2xf64>, tensor<2x2xf64>) {
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0 : (tensor<3x2x2xf64>, tensor<8x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>, tensor<3x2x8xf64>, tensor<3x2x2xf64>, tensor<2x2xf64>) -> (tensor<3x2x8xf64>, tensor<2x2xf64>, tensor<2x2xf64>)
  return %dx, %dh0, %dc0 : tensor<3x2x8xf64>, tensor<2x2xf64>, tensor<2x2xf64>
}
func.func @lstm_backward_cells_reverse(%dy: tensor<3x2x2xf64>, %r: tensor<8x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<3x2x2xf64>, %gates: tensor<3x2x8xf64> {check.low = 0.1, check.high = 0.9}, %cells: tensor<3x2x2xf64>, %c0: tensor<2x2xf64>, %dcells: tensor<3x2x2xf64>) -> (tensor<3x2x8xf64>, tensor<2x2xf64>, tensor<2x2xf64>) {
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0, %dcells {reverse} : (tensor<3x2x2xf64>, tensor<8x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>, tensor<3x2x8xf64>, tensor<3x2x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>) -> (tensor<3x2x8xf64>, tensor<2x2xf64>, tensor<2x2xf64>)
  return %dx, %dh0, %dc0 : tensor<3x2x8xf64>, tensor<2x2xf64>, tensor<2x2xf64>
}
func.func @gru_backward(%dy: tensor<3x2x2xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<3x2x2xf64>, %gates: tensor<3x2x8xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<3x2x6xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>) {
  %dx, %dh0, %inside = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates : (tensor<3x2x2xf64>, tensor<6x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>, tensor<3x2x8xf64>) -> (tensor<3x2x6xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>)
  return %dx, %dh0, %inside : tensor<3x2x6xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>
}
func.func @gru_backward_reverse(%dy: tensor<2x2x2xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<2x2x2xf64>, %gates: tensor<2x2x8xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<2x2x6xf64>, tensor<2x2xf64>, tensor<2x2x2xf64>) {
  %dx, %dh0, %inside = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates {reverse} : (tensor<2x2x2xf64>, tensor<6x2xf64>, tensor<2x2xf64>, tensor<2x2x2xf64>, tensor<2x2x8xf64>) -> (tensor<2x2x6xf64>, tensor<2x2xf64>, tensor<2x2x2xf64>)
  return %dx, %dh0, %inside : tensor<2x2x6xf64>, tensor<2x2xf64>, tensor<2x2x2xf64>
}
func.func @rnn_tanh_backward(%dy: tensor<3x2x2xf64>, %r: tensor<2x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<3x2x2xf64>) -> (tensor<3x2x2xf64>, tensor<2x2xf64>) {
  %dx, %dh0 = mpt.recurrence_backward tanh %dy, %r, %h0, %y : (tensor<3x2x2xf64>, tensor<2x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>) -> (tensor<3x2x2xf64>, tensor<2x2xf64>)
  return %dx, %dh0 : tensor<3x2x2xf64>, tensor<2x2xf64>
}
func.func @rnn_relu_backward_reverse(%dy: tensor<3x2x2xf64>, %r: tensor<2x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<3x2x2xf64>) -> (tensor<3x2x2xf64>, tensor<2x2xf64>) {
  %dx, %dh0 = mpt.recurrence_backward relu %dy, %r, %h0, %y {reverse} : (tensor<3x2x2xf64>, tensor<2x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>) -> (tensor<3x2x2xf64>, tensor<2x2xf64>)
  return %dx, %dh0 : tensor<3x2x2xf64>, tensor<2x2xf64>
}
func.func @gru_reset_first_states(%x: tensor<3x2x6xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>) -> (tensor<3x2x2xf64>) {
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h0 : (tensor<3x2x6xf64>, tensor<6x2xf64>, tensor<2x2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x6xf64>, tensor<3x2x2xf64>)
  return %y : tensor<3x2x2xf64>
}
func.func @gru_reset_first_reverse(%x: tensor<3x2x6xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>) -> (tensor<3x2x2xf64>) {
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h0 {reverse} : (tensor<3x2x6xf64>, tensor<6x2xf64>, tensor<2x2xf64>) -> (tensor<3x2x2xf64>, tensor<3x2x6xf64>, tensor<3x2x2xf64>)
  return %y : tensor<3x2x2xf64>
}
func.func @gru_reset_first_kept(%x: tensor<2x1x6xf64>, %r: tensor<6x2xf64>, %h0: tensor<1x2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x2xf64>) {
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h0 : (tensor<2x1x6xf64>, tensor<6x2xf64>, tensor<1x2xf64>) -> (tensor<2x1x2xf64>, tensor<2x1x6xf64>, tensor<2x1x2xf64>)
  return %y, %kept : tensor<2x1x2xf64>, tensor<2x1x2xf64>
}
func.func @gru_reset_first_backward(%dy: tensor<3x2x2xf64>, %r: tensor<6x2xf64>, %h0: tensor<2x2xf64>, %y: tensor<3x2x2xf64>, %gates: tensor<3x2x6xf64> {check.low = 0.1, check.high = 0.9}) -> (tensor<3x2x6xf64>, tensor<2x2xf64>) {
  %dx, %dh0 = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates {reverse} : (tensor<3x2x2xf64>, tensor<6x2xf64>, tensor<2x2xf64>, tensor<3x2x2xf64>, tensor<3x2x6xf64>) -> (tensor<3x2x6xf64>, tensor<2x2xf64>)
  return %dx, %dh0 : tensor<3x2x6xf64>, tensor<2x2xf64>
}
