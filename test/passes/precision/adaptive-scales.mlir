// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=als-f16 --precision-insert-casts --precision-master-weights --precision-adaptive-scales --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify | FileCheck %s --check-prefix=CHAIN
// RUN: mpt-opt %s --precision-assign=policy=als-f16-product --precision-insert-casts --precision-adaptive-scales --precision-loss-scaling --precision-widen-reductions --precision-verify | FileCheck %s
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 --precision-insert-casts --precision-adaptive-scales | FileCheck %s --check-prefix=NONE

// NONE-NOT: train.rescale

// Scale 1 at the seed, one at the rounding to f16, one a GEMM, bounded by the scale gained since the rounding; each
// parameter's gradient loses the scale that it carries.
// CHAIN-LABEL: func.func @step
// CHAIN: %[[SEED:.*]] = train.scale_loss %{{.*}}, %[[ONE:[^ ]+]]
// CHAIN: train.log_moments %[[SEED]]
// CHAIN: %[[F0:.*]] = train.cast_scale
// CHAIN: %[[S0:.*]] = mpt.mul %[[ONE]], %[[F0]]
// CHAIN: train.rescale %[[SEED]], %[[ONE]] to %[[S0]] : (tensor<8x2xf32>, {{.*}} -> tensor<8x2xf32>
// CHAIN: %[[N1:.*]] = mpt.div %[[S0]], %[[S0]]
// CHAIN: %[[F1:.*]] = train.layer_scale {{.*}}, %[[N1]] {{{.*}}spread = "sum"{{.*}}terms = 2 : i64
// CHAIN: %[[S1:.*]] = mpt.mul %[[S0]], %[[F1]]
// CHAIN: %[[D1:.*]] = mpt.matmul {{.*}} -> tensor<8x16xf32>
// CHAIN: train.rescale %[[D1]], %[[S0]] to %[[S1]] : (tensor<8x16xf32>, tensor<f32>, tensor<f32>) -> tensor<8x16xf16>
// CHAIN: %[[N2:.*]] = mpt.div %[[S1]], %[[S0]]
// CHAIN: %[[F2:.*]] = train.layer_scale {{.*}}, %[[N2]] {{{.*}}terms = 16 : i64
// CHAIN: %[[S2:.*]] = mpt.mul %[[S1]], %[[F2]]
// CHAIN: %[[GA:.*]] = train.unscale %{{.*}}, %[[S2]]
// CHAIN: train.gradient @a, %[[GA]]
// CHAIN: %[[GB:.*]] = train.unscale %{{.*}}, %[[S1]]
// CHAIN: train.gradient @b, %[[GB]]
// CHAIN: %[[GC:.*]] = train.unscale %{{.*}}, %[[S0]]
// CHAIN: train.gradient @c, %[[GC]]
// CHAIN: train.all_finite

// Two gradients of one value meet: both come to the common scale.
// CHECK-LABEL: func.func @residual
// CHECK: %[[G:.*]] = train.scale_loss %{{.*}}, %[[ONE:[^ ]+]]
// CHECK: %[[S:.*]] = mpt.mul %[[ONE]],
// CHECK: %[[D:.*]] = mpt.matmul {{.*}}transpose_b
// CHECK: %[[M:.*]] = train.merge_scale(%[[ONE]], %[[S]]) maxima(
// CHECK-DAG: %[[A:.*]] = train.rescale %[[G]], %[[ONE]] to %[[M]]
// CHECK-DAG: %[[B:.*]] = train.rescale %[[D]], %[[S]] to %[[M]]
// CHECK: mpt.add %[[A]], %[[B]]
// CHECK: train.unscale %{{.*}}, %[[M]]
module {
  train.state parameter @w : tensor<16x16xf32> = dense<0.5> : tensor<16x16xf32>
  func.func @residual(%x: tensor<8x16xf32>) {
    %w = train.read @w : tensor<16x16xf32>
    %h = mpt.matmul %x, %w : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("one")
    %y = mpt.matmul %h, %w : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("two")
    %dy = mpt.constant dense<1.0> : tensor<8x16xf32> {mpt.seed}
    %d = mpt.matmul %dy, %w {transpose_b = true} : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32> loc("two")
    %dh = mpt.add %dy, %d : tensor<8x16xf32> loc("residual")
    %dw = mpt.matmul %x, %dh {transpose_a = true} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<16x16xf32> loc("one")
    %g = train.gradient @w, %dw : tensor<16x16xf32>
    train.write @w, %g : tensor<16x16xf32>
    return
  }
}
