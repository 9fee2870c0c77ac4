// RUN: mpt-opt %s --training-accumulate=micro-steps=2 | FileCheck %s
// RUN: mpt-opt %s --training-accumulate | FileCheck %s --check-prefix=ONE
// RUN: not mpt-opt %s --training-accumulate=micro-steps=0 2>&1 | FileCheck %s --check-prefix=ZERO
// An FP16 gradient is accumulated in FP32; statistics and generators move on in a micro-step, counters do not.
// CHECK: accumulator @w.accumulator : tensor<3xf32>
// CHECK-LABEL: func.func @accumulate
// CHECK: train.write @mpt.rng
// CHECK: train.write @mean
// CHECK-NOT: train.write @mpt.step
// CHECK: %[[G:.*]] = train.gradient @w, %{{.*}} : tensor<3xf16>
// CHECK: %[[OLD:.*]] = train.read @w.accumulator
// CHECK: %[[WIDE:.*]] = mpt.cast %[[G]] : tensor<3xf16> to tensor<3xf32>
// CHECK: %[[SUM:.*]] = mpt.add %[[OLD]], %[[WIDE]]
// CHECK: train.write @w.accumulator, %[[SUM]]
// ONE-NOT: accumula
// ZERO: error: expected micro-steps of at least 1, got 0
train.state parameter @w : tensor<3xf16> = dense<0.5> : tensor<3xf16>
train.state statistic @mean : tensor<3xf16> = dense<0.5> : tensor<3xf16>
train.state rng @mpt.rng : tensor<2xi64> = dense<0> : tensor<2xi64>
train.state counter @mpt.step : tensor<i64> = dense<0> : tensor<i64>
func.func @step(%l: tensor<f32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %w = train.read @w : tensor<3xf16>
  %key = train.read @mpt.rng : tensor<2xi64>
  train.write @mpt.rng, %key : tensor<2xi64>
  train.write @mean, %w : tensor<3xf16>
  %n = train.read @mpt.step : tensor<i64>
  train.write @mpt.step, %n : tensor<i64>
  %g = train.gradient @w, %w : tensor<3xf16>
  return %l : tensor<f32>
}
