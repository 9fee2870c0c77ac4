// GEMMs and convolutions of odd extents, and reductions of lengths that no vector divides.
func.func @matmul(%a: tensor<7x33xf64>, %b: tensor<33x5xf64>) -> tensor<7x5xf64> {
  %y = mpt.matmul %a, %b : (tensor<7x33xf64>, tensor<33x5xf64>) -> tensor<7x5xf64>
  return %y : tensor<7x5xf64>
}
func.func @matmul_batched_transposed(%a: tensor<2x3x9x5xf64>, %b: tensor<2x3x4x9xf64>) -> tensor<2x3x5x4xf64> {
  %y = mpt.matmul %a, %b {transpose_a = true, transpose_b = true} : (tensor<2x3x9x5xf64>, tensor<2x3x4x9xf64>) -> tensor<2x3x5x4xf64>
  return %y : tensor<2x3x5x4xf64>
}
func.func @conv_line(%x: tensor<2x3x11xf64>, %w: tensor<5x3x3xf64>) -> tensor<2x5x6xf64> {
  %y = mpt.conv %x, %w {strides = array<i64: 2>, dilations = array<i64: 1>, pads_low = array<i64: 1>, pads_high = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x11xf64>, tensor<5x3x3xf64>) -> tensor<2x5x6xf64>
  return %y : tensor<2x5x6xf64>
}
func.func @conv_grouped(%x: tensor<1x6x9x7xf64>, %w: tensor<6x1x3x3xf64>) -> tensor<1x6x9x7xf64> {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, pads_high = array<i64: 1, 1>, groups = 6 : i64} : (tensor<1x6x9x7xf64>, tensor<6x1x3x3xf64>) -> tensor<1x6x9x7xf64>
  return %y : tensor<1x6x9x7xf64>
}
// Depthwise, channels in eights: strides, a dilation, padding that differs between sides; rows that no run of positions divides.
func.func @depthwise(%x: tensor<2x16x9x11xf64>, %w: tensor<16x1x3x5xf64>) -> tensor<2x16x5x10xf64> {
  %y = mpt.conv %x, %w {strides = array<i64: 2, 1>, dilations = array<i64: 1, 2>, pads_low = array<i64: 1, 3>, pads_high = array<i64: 1, 4>, groups = 16 : i64} : (tensor<2x16x9x11xf64>, tensor<16x1x3x5xf64>) -> tensor<2x16x5x10xf64>
  return %y : tensor<2x16x5x10xf64>
}
func.func @depthwise_data(%dy: tensor<2x16x5x7xf64>, %w: tensor<16x1x3x5xf64>) -> tensor<2x16x9x20xf64> {
  %y = mpt.conv_backward_data %dy, %w {strides = array<i64: 2, 3>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 2>, pads_high = array<i64: 1, 1>, groups = 16 : i64} : (tensor<2x16x5x7xf64>, tensor<16x1x3x5xf64>) -> tensor<2x16x9x20xf64>
  return %y : tensor<2x16x9x20xf64>
}
func.func @depthwise_weights(%x: tensor<2x16x9x20xf64>, %dy: tensor<2x16x5x7xf64>) -> tensor<16x1x3x5xf64> {
  %y = mpt.conv_backward_weights %x, %dy {strides = array<i64: 2, 3>, dilations = array<i64: 1, 1>, pads_low = array<i64: 1, 2>, pads_high = array<i64: 1, 1>, groups = 16 : i64} : (tensor<2x16x9x20xf64>, tensor<2x16x5x7xf64>) -> tensor<16x1x3x5xf64>
  return %y : tensor<16x1x3x5xf64>
}
func.func @reduce_inner(%x: tensor<3x129xf64>) -> (tensor<3xf64>, tensor<3xf64>, tensor<3xf64>) {
  %0 = mpt.reduce sum %x {axes = array<i64: 1>} : (tensor<3x129xf64>) -> tensor<3xf64>
  %1 = mpt.reduce mean %x {axes = array<i64: 1>} : (tensor<3x129xf64>) -> tensor<3xf64>
  %2 = mpt.reduce max %x {axes = array<i64: 1>} : (tensor<3x129xf64>) -> tensor<3xf64>
  return %0, %1, %2 : tensor<3xf64>, tensor<3xf64>, tensor<3xf64>
}
func.func @reduce_outer(%x: tensor<67x3x2xf64>) -> tensor<3xf64> {
  %0 = mpt.reduce sum %x {axes = array<i64: 0, 2>} : (tensor<67x3x2xf64>) -> tensor<3xf64>
  return %0 : tensor<3xf64>
}
func.func @arg_max(%x: tensor<5x19xf64>) -> tensor<5xi64> {
  %0 = mpt.arg_reduce %x {kind = #mpt<reduce_kind max>, axis = 1 : i64} : (tensor<5x19xf64>) -> tensor<5xi64>
  return %0 : tensor<5xi64>
}
// The bias and the activation run in the GEMM's epilogue, rounded as the ops say.
func.func @linear_relu(%x: tensor<9x70xf64>, %w: tensor<21x70xf64>, %b: tensor<21xf64>) -> tensor<9x21xf64> {
  %y = mpt.matmul %x, %w {transpose_b = true} : (tensor<9x70xf64>, tensor<21x70xf64>) -> tensor<9x21xf64>
  %r = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<21xf64>) -> tensor<9x21xf64>
  %s = mpt.add %y, %r : tensor<9x21xf64>
  %a = mpt.relu %s : tensor<9x21xf64>
  return %a : tensor<9x21xf64>
}
// Few columns: sums in lanes along the inner extent.
func.func @matmul_thin(%a: tensor<7x75xf64>, %b: tensor<10x75xf64>) -> tensor<7x10xf64> {
  %y = mpt.matmul %a, %b {transpose_b = true} : (tensor<7x75xf64>, tensor<10x75xf64>) -> tensor<7x10xf64>
  return %y : tensor<7x10xf64>
}
// A layer norm's gradient whose operand rows and columns both add up: rows first, then elements with three sums of columns.
func.func @row_and_column_sums(%a: tensor<512x128xf64>, %b: tensor<512x128xf64>, %x: tensor<512x128xf64>) -> (tensor<128xf64>, tensor<512x128xf64>, tensor<128xf64>) {
  %g = mpt.add %a, %b : tensor<512x128xf64>
  %p = mpt.mul %g, %x : tensor<512x128xf64>
  %q = mpt.mul %x, %g : tensor<512x128xf64>
  %gain = mpt.reduce sum %q {axes = array<i64: 0>} : (tensor<512x128xf64>) -> tensor<128xf64>
  %r = mpt.reduce mean %p {axes = array<i64: 1>} : (tensor<512x128xf64>) -> tensor<512xf64>
  %rb = mpt.broadcast %r {dims = array<i64: 0>} : (tensor<512xf64>) -> tensor<512x128xf64>
  %m = mpt.mul %rb, %x : tensor<512x128xf64>
  %dx = mpt.sub %g, %m : tensor<512x128xf64>
  %bias = mpt.reduce sum %dx {axes = array<i64: 0>} : (tensor<512x128xf64>) -> tensor<128xf64>
  return %gain, %dx, %bias : tensor<128xf64>, tensor<512x128xf64>, tensor<128xf64>
}
// Elements and sums of all of them: a GPU shares the one long row out over blocks, which write their elements.
func.func @elements_and_their_sums(%a: tensor<3x9000xf64>, %b: tensor<3x9000xf64>) -> (tensor<3x9000xf64>, tensor<f64>, tensor<f64>) {
  %y = mpt.mul %a, %b : tensor<3x9000xf64>
  %square = mpt.mul %y, %y : tensor<3x9000xf64>
  %mean = mpt.reduce mean %square {axes = array<i64: 0, 1>} : (tensor<3x9000xf64>) -> tensor<f64>
  %size = mpt.abs %y : tensor<3x9000xf64>
  %top = mpt.reduce max %size {axes = array<i64: 0, 1>} : (tensor<3x9000xf64>) -> tensor<f64>
  %ratio = mpt.div %top, %mean : tensor<f64>
  return %y, %ratio, %top : tensor<3x9000xf64>, tensor<f64>, tensor<f64>
}
