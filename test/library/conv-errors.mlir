// RUN: mpt-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<1x7x4x4xf16>, %w: tensor<8x8x3x3xf16>) {
  // expected-error@+2 {{C2: expected 7 channels in 1 groups}}
  // expected-error@+1 {{C1: expected operands and attributes that mpt.conv takes}}
  %y = library.conv forward %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x7x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16>
  return
}

// -----

func.func @f(%x: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>) {
  // expected-error@+1 {{C1: expected}}
  %y = library.conv forward %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x5x4xf16>
  return
}

// -----

func.func @f(%x: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>) {
  // expected-error@+1 {{C2: expected no sums or two, got 1}}
  %y, %s:1 = library.conv forward %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>) {
  // expected-error@+1 {{C2: expected sums of type 'tensor<8xf32>', got 'tensor<8xf16>'}}
  %y, %s:2 = library.conv forward %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<8xf32>, tensor<8xf16>
  return
}

// -----

func.func @f(%x: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>) {
  // expected-error@+1 {{C2: expected sums of type 'tensor<8xf32>', got 'tensor<4xf32>'}}
  %y, %s:2 = library.conv forward %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<4xf32>, tensor<8xf32>
  return
}

// -----

func.func @b(%dy: tensor<1x8x3x4xf16>, %w: tensor<8x8x3x3xf16>, %n0: tensor<1x8x4x4xf16>, %n1: tensor<8xf32>, %n2: tensor<8xf32>, %n3: tensor<8xf32>, %n4: tensor<8xf32>) {
  // expected-error@+1 {{C1: expected}}
  %dx, %s:2 = library.conv backward_data %dy, %w norm %n0, %n1, %n2, %n3, %n4 : tensor<1x8x4x4xf16>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32> {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x3x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @b(%dy: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>) {
  // expected-error@+1 {{C3: expected 5 parts of a norm beside 2 sums, got 0}}
  %dx, %s:2 = library.conv backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @b(%dy: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>, %n0: tensor<1x8x4x4xf16>, %n1: tensor<8xf32>, %n2: tensor<8xf32>, %n3: tensor<8xf32>, %n4: tensor<8xf32>) {
  // expected-error@+1 {{C3: expected 0 parts of a norm beside 0 sums, got 5}}
  %dx = library.conv backward_data %dy, %w norm %n0, %n1, %n2, %n3, %n4 : tensor<1x8x4x4xf16>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32> {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16>
  return
}

// -----

func.func @b(%dy: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>, %n0: tensor<1x8x4x4xf32>, %n1: tensor<8xf32>, %n2: tensor<8xf32>, %n3: tensor<8xf32>, %n4: tensor<8xf32>) {
  // expected-error@+1 {{C4: expected a norm's input of type 'tensor<1x8x4x4xf16>', got 'tensor<1x8x4x4xf32>'}}
  %dx, %s:2 = library.conv backward_data %dy, %w norm %n0, %n1, %n2, %n3, %n4 : tensor<1x8x4x4xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32> {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @b(%dy: tensor<1x8x4x4xf16>, %w: tensor<8x8x3x3xf16>, %n0: tensor<1x8x4x4xf16>, %n1: tensor<8xf32>, %n2: tensor<8xf32>, %n3: tensor<8xf32>, %n4: tensor<4xf32>) {
  // expected-error@+1 {{C4: expected parts of type 'tensor<8xf32>', got 'tensor<4xf32>'}}
  %dx, %s:2 = library.conv backward_data %dy, %w norm %n0, %n1, %n2, %n3, %n4 : tensor<1x8x4x4xf16>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<4xf32> {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<8x8x3x3xf16> -> tensor<1x8x4x4xf16> sums tensor<8xf32>, tensor<8xf32>
  return
}

// -----

func.func @c(%x: tensor<1x8x4x4xf16>, %dy: tensor<1x8x4x4xf16>) {
  // expected-error@+1 {{C2: expected no sums of backward_weights, got 2}}
  %dw, %s:2 = library.conv backward_weights %x, %dy {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : tensor<1x8x4x4xf16>, tensor<1x8x4x4xf16> -> tensor<8x8x3x3xf16> sums tensor<8xf32>, tensor<8xf32>
  return
}
