// RUN: mpt-run %s
// RUN: mpt-opt %s --fusion-lower-train | mpt-run -

// The scaled gradient 1e-4 * 1024 carries 1024; with 2048 it is twice that, and in f16 it is rounded once.
func.func @rescale() {
  %g = mpt.constant dense<[0.1024, -0.5]> : tensor<2xf32>
  %from = mpt.constant dense<1024.0> : tensor<f32>
  %to = mpt.constant dense<2048.0> : tensor<f32>
  %y = train.rescale %g, %from to %to : (tensor<2xf32>, tensor<f32>, tensor<f32>) -> tensor<2xf16>
  %e = mpt.constant dense<[0.2048, -1.0]> : tensor<2xf16>
  check.equal %y, %e : tensor<2xf16>
  return
}

func.func @moments() {
  %x = mpt.constant dense<[[1.0, -5.0], [0.0, 4.0]]> : tensor<2x2xf16>
  %square, %max = train.moments %x : (tensor<2x2xf16>) -> (tensor<f32>, tensor<f32>)
  %square_e = mpt.constant dense<10.5> : tensor<f32>
  %max_e = mpt.constant dense<5.0> : tensor<f32>
  check.equal %square, %square_e : tensor<f32>
  check.equal %max, %max_e : tensor<f32>
  return
}

// ln 1 and ln e^2 count, the zero does not.
func.func @log_moments() {
  %x = mpt.constant dense<[1.0, 0.0, -7.3890561]> : tensor<3xf32>
  %mean, %square, %max = train.log_moments %x : (tensor<3xf32>) -> (tensor<f32>, tensor<f32>, tensor<f32>)
  %one = mpt.constant dense<1.0> : tensor<f32>
  %two = mpt.constant dense<2.0> : tensor<f32>
  %top = mpt.constant dense<7.3890561> : tensor<f32>
  check.close %mean, %one {rtol = 1.0e-6 : f64, atol = 0.0 : f64} : tensor<f32>
  check.close %square, %two {rtol = 1.0e-6 : f64, atol = 0.0 : f64} : tensor<f32>
  check.equal %max, %top : tensor<f32>
  return
}

// g and w of spread 1e-4 and 2, 8 terms: sigma = 1e-4 * 2 * 2; 6e-8 / (1.2533e-3 * 4e-4) = 0.1197 is below 1.
// With a spread of 1e-7: 119.7, which layer_max 16 cuts; without a bound 64; of one term 128 of 239.
func.func @layer_scale() {
  %square = mpt.constant dense<1.0e-8> : tensor<f32>
  %tiny = mpt.constant dense<1.0e-14> : tensor<f32>
  %four = mpt.constant dense<4.0> : tensor<f32>
  %high = mpt.constant dense<3.0e-7> : tensor<f32>
  %whigh = mpt.constant dense<6.0> : tensor<f32>
  %scale = mpt.constant dense<1.0> : tensor<f32>
  %zero = mpt.constant dense<0.0> : tensor<f32>
  %0 = train.layer_scale %square, %high, %four, %whigh, %scale {terms = 8 : i64, spread = "sum", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 16.0 : f64, total_max = 1024.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %0, %scale : tensor<f32>
  %1 = train.layer_scale %tiny, %high, %four, %whigh, %scale {terms = 8 : i64, spread = "sum", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 16.0 : f64, total_max = 1024.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %sixteen = mpt.constant dense<16.0> : tensor<f32>
  check.equal %1, %sixteen : tensor<f32>
  %2 = train.layer_scale %tiny, %high, %four, %whigh, %scale {terms = 8 : i64, spread = "sum", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 1.0e30 : f64, total_max = 1.0e30 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %sixtyfour = mpt.constant dense<64.0> : tensor<f32>
  check.equal %2, %sixtyfour : tensor<f32>
  %3 = train.layer_scale %tiny, %high, %four, %whigh, %scale {terms = 8 : i64, spread = "product", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 1.0e30 : f64, total_max = 1.0e30 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %128 = mpt.constant dense<128.0> : tensor<f32>
  check.equal %3, %128 : tensor<f32>
  // The layers so far gained 256 of 1024: at most 4 more. Large extremes push the scale below 1. No spread: 1.
  %so_far = mpt.constant dense<256.0> : tensor<f32>
  %4 = train.layer_scale %tiny, %high, %four, %whigh, %so_far {terms = 8 : i64, spread = "sum", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 16.0 : f64, total_max = 1024.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %4, %four : tensor<f32>
  %large = mpt.constant dense<6.0e+3> : tensor<f32>
  %5 = train.layer_scale %square, %large, %four, %whigh, %scale {terms = 8 : i64, spread = "sum", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 16.0 : f64, total_max = 1024.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %eighth = mpt.constant dense<0.125> : tensor<f32>
  check.equal %5, %eighth : tensor<f32>
  %6 = train.layer_scale %zero, %zero, %four, %whigh, %scale {terms = 8 : i64, spread = "sum", underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64, layer_max = 16.0 : f64, total_max = 1024.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %6, %scale : tensor<f32>
  return
}

// All magnitudes e^-20: the quantile is the mean; 6e-8 / e^-20 = 29.1, down to 16. The largest magnitude bounds it, below 1
// too: 65504 / (256 * 1000) = 0.256. Values large enough stay as they are.
func.func @cast_scale() {
  %mean = mpt.constant dense<-20.0> : tensor<f32>
  %square = mpt.constant dense<400.0> : tensor<f32>
  %max = mpt.constant dense<1.0e-7> : tensor<f32>
  %0 = train.cast_scale %mean, %square, %max {underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %sixteen = mpt.constant dense<16.0> : tensor<f32>
  check.equal %0, %sixteen : tensor<f32>
  %large = mpt.constant dense<1.0e+3> : tensor<f32>
  %1 = train.cast_scale %mean, %square, %large {underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %quarter = mpt.constant dense<0.25> : tensor<f32>
  check.equal %1, %quarter : tensor<f32>
  %minus_one = mpt.constant dense<-1.0> : tensor<f32>
  %one = mpt.constant dense<1.0> : tensor<f32>
  %2 = train.cast_scale %minus_one, %one, %one {underflow = 1.0e-3 : f64, smallest = 6.0e-8 : f64, largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %2, %one : tensor<f32>
  return
}

// The larger scale, unless the other gradient would overflow with it; where none fits, the largest power of two that does,
// however small: 65504 / 2^20 = 0.0624, down to 2^-5, for a largest magnitude of 2^24 that carries 16. 1 where one is not finite.
func.func @merge_scale() {
  %a = mpt.constant dense<1024.0> : tensor<f32>
  %b = mpt.constant dense<16.0> : tensor<f32>
  %one = mpt.constant dense<1.0> : tensor<f32>
  %0 = train.merge_scale(%a, %b) maxima(%one, %one) {largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %0, %a : tensor<f32>
  %large = mpt.constant dense<4096.0> : tensor<f32>
  %1 = train.merge_scale(%a, %b) maxima(%one, %large) {largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %1, %b : tensor<f32>
  %inf = mpt.constant dense<0x7F800000> : tensor<f32>
  %2 = train.merge_scale(%a, %b) maxima(%inf, %large) {largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  check.equal %2, %one : tensor<f32>
  %huge = mpt.constant dense<0x4B800000> : tensor<f32>
  %3 = train.merge_scale(%a, %b) maxima(%one, %huge) {largest = 65504.0 : f64} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  %thirtysecond = mpt.constant dense<0.03125> : tensor<f32>
  check.equal %3, %thirtysecond : tensor<f32>
  return
}

// 448 / amax; nothing known, infinity and NaN keep the scale; beyond FP32 its largest value.
func.func @tensor_scale() {
  %amax = mpt.constant dense<[7.0, 0.0, 0x7F800000, 0x7FC00000, 1.0e-38]> : tensor<5xf32>
  %old = mpt.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0]> : tensor<5xf32>
  %0 = train.tensor_scale %amax, %old {largest = 448.0 : f64} : tensor<5xf32>
  %e = mpt.constant dense<[64.0, 2.0, 3.0, 4.0, 0x7F7FFFFF]> : tensor<5xf32>
  check.equal %0, %e : tensor<5xf32>
  %1 = train.tensor_scale %amax, %old {largest = 448.0 : f64, margin = 1 : i64} : tensor<5xf32>
  %half = mpt.constant dense<[32.0, 2.0, 3.0, 4.0, 0x7F7FFFFF]> : tensor<5xf32>
  check.equal %1, %half : tensor<5xf32>
  %nine = mpt.constant dense<9.0> : tensor<f32>
  %one = mpt.constant dense<1.0> : tensor<f32>
  %2 = train.tensor_scale %nine, %one {largest = 448.0 : f64, power_of_two = true} : tensor<f32>
  %32 = mpt.constant dense<32.0> : tensor<f32>
  check.equal %2, %32 : tensor<f32>
  return
}

func.func @roll() {
  %history = mpt.constant dense<[[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]> : tensor<2x3xf32>
  %newest = mpt.constant dense<[9.0, 0.0]> : tensor<2xf32>
  %0 = train.roll %history, %newest : tensor<2x3xf32>, tensor<2xf32>
  %e = mpt.constant dense<[[9.0, 3.0, 2.0], [6.0, 5.0, 4.0]]> : tensor<2x3xf32>
  check.equal %0, %e : tensor<2x3xf32>
  return
}

// 4 from step 10 on, 32 from step 20 on. Where a floor begins it lifts the scale; it holds the scale while fewer than 3 steps
// in a row were not finite (hysteresis 2, so down to a count of 0); it gives way then, and lifts nothing from below.
func.func @floors() {
  %one = mpt.constant dense<1.0> : tensor<f32>
  %two = mpt.constant dense<2.0> : tensor<f32>
  %four = mpt.constant dense<4.0> : tensor<f32>
  %32 = mpt.constant dense<32.0> : tensor<f32>
  %8 = mpt.constant dense<8> : tensor<i32>
  %9 = mpt.constant dense<9> : tensor<i32>
  %12 = mpt.constant dense<12> : tensor<i32>
  %19 = mpt.constant dense<19> : tensor<i32>
  %full = mpt.constant dense<2> : tensor<i32>
  %none = mpt.constant dense<0> : tensor<i32>
  %less = mpt.constant dense<-1> : tensor<i32>
  %early = train.floor_scale %one, %one, %8, %full {floor_steps = array<i64: 10, 20>, floors = array<f64: 4.0, 32.0>, hysteresis = 2 : i64, patience = 3 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
  check.equal %early, %one : tensor<f32>
  %begins = train.floor_scale %one, %one, %9, %full {floor_steps = array<i64: 10, 20>, floors = array<f64: 4.0, 32.0>, hysteresis = 2 : i64, patience = 3 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
  check.equal %begins, %four : tensor<f32>
  %rises = train.floor_scale %one, %one, %19, %less {floor_steps = array<i64: 10, 20>, floors = array<f64: 4.0, 32.0>, hysteresis = 2 : i64, patience = 3 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
  check.equal %rises, %32 : tensor<f32>
  %holds = train.floor_scale %two, %four, %12, %none {floor_steps = array<i64: 10, 20>, floors = array<f64: 4.0, 32.0>, hysteresis = 2 : i64, patience = 3 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
  check.equal %holds, %four : tensor<f32>
  %yields = train.floor_scale %two, %four, %12, %less {floor_steps = array<i64: 10, 20>, floors = array<f64: 4.0, 32.0>, hysteresis = 2 : i64, patience = 3 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
  check.equal %yields, %two : tensor<f32>
  %below = train.floor_scale %two, %two, %12, %full {floor_steps = array<i64: 10, 20>, floors = array<f64: 4.0, 32.0>, hysteresis = 2 : i64, patience = 3 : i64} : (tensor<f32>, tensor<f32>, tensor<i32>, tensor<i32>) -> tensor<f32>
  check.equal %below, %two : tensor<f32>
  return
}
