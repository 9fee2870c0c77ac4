// RUN: mpt-opt %S/Inputs/linear.mlir --precision-assign --precision-loss-scaling | FileCheck %s --check-prefix=DYNAMIC
// RUN: mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=1024' --precision-loss-scaling | FileCheck %s --check-prefix=FIXED
// RUN: mpt-opt %S/Inputs/linear.mlir --precision-assign=policy=amp-bf16 --precision-loss-scaling | FileCheck %s --check-prefix=BF16
// RUN: mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=none' --precision-loss-scaling | FileCheck %s --check-prefix=NONE
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign --precision-loss-scaling | FileCheck %s --check-prefix=CLIP
// RUN: not mpt-opt %S/Inputs/linear.mlir --precision-loss-scaling 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=-3' 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=dynamic,window=3' 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=dynamic,interval=1.5' 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=dynamic,init=2,min=4' 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=64,min=4' 2>&1 | FileCheck %s --check-prefix=ALL-FIXED
// RUN: mpt-opt %S/Inputs/linear.mlir '--precision-assign=loss-scale=dynamic,init=8,growth=4,backoff=0.25,interval=3,hysteresis=2,min=2,max=32' --precision-loss-scaling | FileCheck %s --check-prefix=SETTINGS
// RUN: not mpt-opt %S/Inputs/linear.mlir --precision-assign --precision-loss-scaling --precision-loss-scaling 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: mpt-opt %S/Inputs/marked.mlir --precision-assign --precision-loss-scaling --precision-verify | FileCheck %s --check-prefix=MARKED
// RUN: mpt-opt %S/Inputs/marked.mlir --precision-assign=policy=amp-bf16 --precision-loss-scaling --precision-verify | FileCheck %s --check-prefix=UNMARKED
// RUN: not mpt-opt %s --precision-assign --precision-loss-scaling 2>&1 | FileCheck %s --check-prefix=NOSEED

// ALONE: expected the policy's summary, got none: run precision-assign first
// BAD: expected a loss scale of dynamic, none or a positive number, got -3
// KEY: expected init, growth, backoff, interval, hysteresis, min, max, floors, patience or check of the loss scale, got window=3
// WHOLE: expected a whole number for interval of the loss scale, got 1.5
// ORDER: expected 0 < min <= init <= max of the loss scale, got dynamic,init=2,min=4
// ALL-FIXED: expected settings of the loss scale after dynamic only, got 64,min=4
// SETTINGS: scale @mpt.loss_scale : tensor<f32> = dense<8.000000e+00>
// SETTINGS: scale @mpt.hysteresis : tensor<i32> = dense<2>
// SETTINGS: train.update_scale {{.*}}{backoff = 2.500000e-01 : f64, growth = 4.000000e+00 : f64, hysteresis = 2 : i64, interval = 3 : i64, max = 3.200000e+01 : f64, min = 2.000000e+00 : f64}
// TWICE: expected no state named mpt.loss_scale before precision-loss-scaling
// NOSEED: expected a gradient seed (mpt.seed) before the gradients, found none

// DYNAMIC: scale @mpt.loss_scale : tensor<f32> = dense<6.553600e+04>
// DYNAMIC: scale @mpt.good_steps : tensor<i32> = dense<0>
// DYNAMIC: scale @mpt.hysteresis : tensor<i32> = dense<1>
// DYNAMIC: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "loss_scale", train.role = #train<role loss_scale>}, tensor<i1> {mpt.name = "skipped", train.role = #train<role skipped>})
// DYNAMIC: %[[SCALE:.*]] = train.read @mpt.loss_scale
// DYNAMIC: %[[SEED:.*]] = mpt.constant {{.*}}mpt.seed
// DYNAMIC: %[[SCALED:.*]] = train.scale_loss %[[SEED]], %[[SCALE]]
// DYNAMIC: mpt.broadcast %[[SCALED]]
// DYNAMIC: %[[TRUE:.*]] = train.unscale %{{.*}}, %[[SCALE]]
// DYNAMIC: %[[G:.*]] = train.gradient @w, %[[TRUE]]
// DYNAMIC: %[[FINITE:.*]] = train.all_finite %[[G]]
// DYNAMIC: %[[SKIPPED:.*]] = mpt.not %[[FINITE]]
// DYNAMIC: train.write @mpt.rng, %{{[^ ]*}} : tensor<2xi64>
// DYNAMIC: train.write @mean, %{{.*}} if %[[FINITE]]
// DYNAMIC: train.write @w, %{{.*}} if %[[FINITE]]
// DYNAMIC: train.write @mpt.step, %{{.*}} if %[[FINITE]]
// DYNAMIC: %[[NEW:.*]], %[[GOOD:.*]], %[[LEFT:.*]] = train.update_scale %[[SCALE]], %{{.*}}, %{{.*}}, %[[FINITE]] {backoff = 5.000000e-01 : f64, growth = 2.000000e+00 : f64, hysteresis = 1 : i64, interval = 2000 : i64
// DYNAMIC: train.write @mpt.loss_scale, %[[NEW]] : tensor<f32>
// DYNAMIC: train.write @mpt.good_steps, %[[GOOD]] : tensor<i32>
// DYNAMIC: train.write @mpt.hysteresis, %[[LEFT]] : tensor<i32>
// DYNAMIC: return {{.*}}%[[SCALE]], %[[SKIPPED]]

// FIXED-NOT: @mpt.loss_scale
// FIXED: %[[SCALE:.*]] = mpt.constant dense<1.024000e+03>
// FIXED: train.scale_loss %{{.*}}, %[[SCALE]]
// FIXED: train.unscale %{{.*}}, %[[SCALE]]
// FIXED: train.write @w, %{{.*}} if

// BF16-NOT: train.scale_loss
// BF16-NOT: train.unscale
// BF16: train.all_finite
// BF16: train.write @w, %{{.*}} if
// NONE-NOT: train.all_finite
// NONE-NOT: skipped

// Clipping reads unscaled gradients, after the finite check; @gradients returns unscaled ones and writes nothing.
// CLIP: %[[U:.*]] = train.unscale
// CLIP: %[[G:.*]] = train.gradient @fc1.weight, %[[U]]
// CLIP: train.all_finite %[[G]]
// CLIP: train.global_norm %[[G]]
// CLIP-LABEL: func.func @gradients
// CLIP: %[[U:.*]] = train.unscale
// CLIP: %[[G:.*]] = train.gradient @fc2.weight, %[[U]]
// CLIP: return {{.*}}%[[G]]

module {
  train.state parameter @w : tensor<4xf32>
  func.func @step(%x: tensor<4xf32>) {
    %g = train.gradient @w, %x : tensor<4xf32>
    train.write @w, %g : tensor<4xf32>
    return
  }
}

// The seed as differentiation leaves it, a scale of 1, takes the loss scale; without one it is the constant again.
// MARKED: %[[S:.*]] = train.read @mpt.loss_scale
// MARKED: train.scale_loss %{{.*}}, %[[S]]
// The sum over the micro-steps is checked, since it carries a value that was not finite in any; it is emptied after a skipped step too.
// MARKED: %[[OLD:.*]] = train.read @w.accumulator
// MARKED: %[[SUM:.*]] = mpt.add %[[OLD]]
// MARKED: train.all_finite %[[SUM]]
// MARKED: train.write @w.accumulator, %{{[0-9]+}} {mpt.precision
// MARKED: train.write @w, %{{.*}} if
// MARKED-LABEL: func.func @accumulate
// MARKED: train.write @w.accumulator, %{{[0-9]+}} {mpt.precision
// MARKED: train.write @mean, %{{.*}} if
// MARKED-NOT: train.update_scale
// UNMARKED-NOT: train.scale_loss
