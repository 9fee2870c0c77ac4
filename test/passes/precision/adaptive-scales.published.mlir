// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=als-f16-2019-09 --precision-insert-casts --precision-master-weights --precision-adaptive-scales --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify | FileCheck %s --check-prefix=SEPTEMBER
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=als-f16-2020-01 --precision-insert-casts --precision-master-weights --precision-adaptive-scales --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify | FileCheck %s --check-prefix=JANUARY

// September 2019: no scale at the first rounding; one a GEMM, of one term, bounded by 16 and by the rest of 1024 from
// the loss on; nothing is kept from step to step.
// SEPTEMBER-NOT: train.state scale
// SEPTEMBER-LABEL: func.func @step
// SEPTEMBER-NOT: train.cast_scale
// SEPTEMBER: %[[SEED:.*]] = train.scale_loss %{{.*}}, %[[ONE:[^ ]+]]
// SEPTEMBER: %[[F1:.*]] = train.layer_scale {{.*}}, %[[ONE]] {largest = 6.000000e+04 : f64, layer_max = 1.600000e+01 : f64, smallest = 6.000000e-08 : f64, spread = "product", terms = 2 : i64, total_max = 1.024000e+03 : f64
// SEPTEMBER: %[[S1:.*]] = mpt.mul %[[ONE]], %[[F1]]
// SEPTEMBER: train.layer_scale {{.*}}, %[[S1]] {
// SEPTEMBER-NOT: train.write @mpt.

// January 2020: one at the first rounding too, which counts; factors are kept for 1,000 steps, and their bounds hold in
// each. A step that is not finite has them chosen anew.
// JANUARY: train.state scale @mpt.scale_steps : tensor<i32> = dense<0>
// JANUARY: train.state scale @mpt.layer_scales : tensor<3xf32> = dense<1.0
// JANUARY-LABEL: func.func @step
// JANUARY: %[[KEPT:.*]] = train.read @mpt.layer_scales
// JANUARY: %[[COUNT:.*]] = train.read @mpt.scale_steps
// JANUARY: %[[DUE:.*]] = mpt.compare eq %[[COUNT]],
// JANUARY: %[[F0:.*]] = train.cast_scale {{.*}} {headroom = 1.000000e+00 : f64
// JANUARY: %[[C0:.*]] = mpt.select %[[DUE]], %[[F0]],
// JANUARY: %[[T0:.*]] = mpt.div %{{.*}}, %[[ONE:[^ ]+]] : tensor<f32>
// JANUARY: %[[L0:.*]] = mpt.min %[[C0]],
// JANUARY: %[[B0:.*]] = mpt.min %[[L0]], %[[T0]]
// JANUARY: %[[S0:.*]] = mpt.mul %[[ONE]], %[[B0]]
// JANUARY: %[[F1:.*]] = train.layer_scale {{.*}}, %[[S0]] {{{.*}}spread = "sum"
// JANUARY: %[[C1:.*]] = mpt.select %[[DUE]], %[[F1]],
// JANUARY: mpt.div %{{.*}}, %[[S0]] : tensor<f32>
// JANUARY: %[[FINITE:.*]] = train.all_finite
// JANUARY: mpt.and %[[FINITE]]
// JANUARY: train.write @mpt.scale_steps
