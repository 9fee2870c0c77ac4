// RUN: mpt-run %s
// RUN: mpt-run %s --function=step --steps=3 | FileCheck %s

// Writes take effect after the call, only where their condition holds; a master starts as its parameter.
// CHECK: loss = 2{{$}}
train.state parameter @w : tensor<bf16> = dense<1.0> : tensor<bf16>
train.state master @w.master : tensor<f32> of "w"
train.state counter @n : tensor<i64> = dense<0> : tensor<i64>
func.func @step(%lr: tensor<f32> {mpt.name = "learning_rate"}) -> (tensor<i64> {mpt.name = "loss", train.role = #train<role loss>}) {
  %m = train.read @w.master : tensor<f32>
  %half = mpt.constant dense<0.5> : tensor<f32>
  %next = mpt.add %m, %half : tensor<f32>
  %never = mpt.constant dense<false> : tensor<i1>
  %never_value = mpt.cast %next : tensor<f32> to tensor<bf16>
  train.write @w, %never_value if %never : tensor<i1> : tensor<bf16>
  train.write @w.master, %next : tensor<f32>
  %n = train.read @n : tensor<i64>
  %one = mpt.constant dense<1> : tensor<i64>
  %more = mpt.add %n, %one : tensor<i64>
  train.write @n, %more : tensor<i64>
  %w = train.read @w : tensor<bf16>
  %w_e = mpt.constant dense<1.0> : tensor<bf16>
  check.equal %w, %w_e : tensor<bf16>
  return %n : tensor<i64>
}

func.func @finite() {
  %a = mpt.constant dense<[3.0, 0.0]> : tensor<2xf16>
  %b = mpt.constant dense<4.0> : tensor<f16>
  %inf = mpt.constant dense<0x7C00> : tensor<f16>
  %t = mpt.constant dense<true> : tensor<i1>
  %f = mpt.constant dense<false> : tensor<i1>
  %good = train.all_finite %a, %b : (tensor<2xf16>, tensor<f16>) -> tensor<i1>
  check.equal %good, %t : tensor<i1>
  %bad = train.all_finite %a, %inf : (tensor<2xf16>, tensor<f16>) -> tensor<i1>
  check.equal %bad, %f : tensor<i1>
  %norm = train.global_norm %a, %b : (tensor<2xf16>, tensor<f16>) -> tensor<f32>
  %five = mpt.constant dense<5.0> : tensor<f32>
  check.equal %norm, %five : tensor<f32>
  return
}

func.func @scaling() {
  %scale = mpt.constant dense<1024.0> : tensor<f32>
  %seed = mpt.constant dense<1.0> : tensor<f16>
  %scaled = train.scale_loss %seed, %scale : tensor<f16>, tensor<f32>
  %e = mpt.constant dense<1024.0> : tensor<f16>
  check.equal %scaled, %e : tensor<f16>
  %g = train.gradient @w, %scaled : tensor<f16>
  %back = train.unscale %g, %scale : (tensor<f16>, tensor<f32>) -> tensor<f32>
  %one = mpt.constant dense<1.0> : tensor<f32>
  check.equal %back, %one : tensor<f32>
  return
}

func.func @update_scale() {
  %scale = mpt.constant dense<8.0> : tensor<f32>
  %good = mpt.constant dense<1> : tensor<i32>
  %left = mpt.constant dense<2> : tensor<i32>
  %t = mpt.constant dense<true> : tensor<i1>
  %f = mpt.constant dense<false> : tensor<i1>
  %zero = mpt.constant dense<0> : tensor<i32>
  %one = mpt.constant dense<1> : tensor<i32>
  %sixteen = mpt.constant dense<16.0> : tensor<f32>
  %four = mpt.constant dense<4.0> : tensor<f32>
  // The second good step of two: the scale grows and the counter restarts.
  %s0, %g0, %h0 = train.update_scale %scale, %good, %left, %t {growth = 2.0, backoff = 0.5, interval = 2 : i64, hysteresis = 2 : i64, min = 1.0, max = 1.0e6} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
  check.equal %s0, %sixteen : tensor<f32>
  check.equal %g0, %zero : tensor<i32>
  check.equal %h0, %left : tensor<i32>
  // The first overflow of two only counts; the second halves the scale.
  %s1, %g1, %h1 = train.update_scale %scale, %good, %left, %f {growth = 2.0, backoff = 0.5, interval = 2 : i64, hysteresis = 2 : i64, min = 1.0, max = 1.0e6} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
  check.equal %s1, %scale : tensor<f32>
  check.equal %g1, %zero : tensor<i32>
  check.equal %h1, %one : tensor<i32>
  %s2, %g2, %h2 = train.update_scale %s1, %g1, %h1, %f {growth = 2.0, backoff = 0.5, interval = 2 : i64, hysteresis = 2 : i64, min = 1.0, max = 1.0e6} : (tensor<f32>, tensor<i32>, tensor<i32>, tensor<i1>) -> (tensor<f32>, tensor<i32>, tensor<i32>)
  check.equal %s2, %four : tensor<f32>
  check.equal %h2, %zero : tensor<i32>
  return
}
