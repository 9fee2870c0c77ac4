// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-current rules="where first -> narrow" rules="where last -> narrow"' --precision-insert-casts --precision-master-weights --precision-quantize --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify | FileCheck %s --check-prefix=CURRENT
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-hybrid rules="where first -> narrow" rules="where last -> narrow"' --precision-insert-casts --precision-master-weights --precision-quantize --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify | FileCheck %s --check-prefix=DELAYED
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=fp8-e5m2 --precision-insert-casts --precision-master-weights --precision-quantize --precision-loss-scaling --precision-widen-reductions --precision-fold-casts --precision-verify | FileCheck %s --check-prefix=E5M2
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=amp-f16 --precision-insert-casts --precision-quantize | FileCheck %s --check-prefix=NONE
// RUN: mpt-opt %s --precision-assign='policy=fp8-current rules="where first -> narrow"' --precision-insert-casts --precision-quantize | FileCheck %s --check-prefix=ATTENTION
// RUN: not mpt-opt %s --precision-assign=policy=%S/Inputs/bad-types.mlir 2>&1 | FileCheck %s --check-prefix=BAD

// BAD: C3: expected f32 or 'f16' (the storage type) for master, got 'bf16'

// NONE-NOT: f8E

// Each tensor is scaled, saturated and converted once for the forward and the backward pass; a gradient is 1-5-2. Its largest
// magnitude is checked with the gradients, since saturation hides infinities.
// CURRENT-LABEL: func.func @step
// CURRENT: %[[TOP:.*]] = mpt.reduce max %{{.*}} {{.*}}mpt.checked
// CURRENT: %[[SX:.*]] = train.tensor_scale %[[TOP]], %{{.*}} {largest = 4.480000e+02 : f64} : tensor<f32>
// CURRENT: %[[QX:.*]] = mpt.cast %{{.*}} {overflow = #mpt<overflow saturate>} : tensor<8x4xf32> to tensor<8x4xf8E4M3FN>
// CURRENT: %[[QA:.*]] = mpt.cast %{{.*}} {overflow = #mpt<overflow saturate>} : tensor<4x16xf32> to tensor<4x16xf8E4M3FN>
// CURRENT: %[[Y:.*]] = mpt.matmul %[[QX]], %[[QA]] {{.*}}numerics = #mpt.numerics<in = f8E4M3FN, acc = f32, out = f32>
// CURRENT: mpt.reciprocal %[[SX]]
// CURRENT: mpt.mul %[[Y]]
// CURRENT: train.tensor_scale {{.*}} {largest = 5.734400e+04 : f64} : tensor<f32>
// CURRENT: to tensor<8x2xf8E5M2>
// CURRENT: mpt.matmul %{{.*}} {{.*}}<in = f16, acc = f32, out = f32>{{.*}} : (tensor<8x16xf8E4M3FN>, tensor<8x2xf8E5M2>) -> tensor<16x2xf32>
// CURRENT: mpt.matmul %[[QX]], %{{.*}} : (tensor<8x4xf8E4M3FN>, tensor<8x16xf8E5M2>) -> tensor<4x16xf32>
// CURRENT: train.all_finite {{.*}}%[[TOP]]

// Nine tensors, all layers in 8 bits: three inputs, three weights, three gradients. The evaluation reads the scales that the step keeps.
// DELAYED: train.state statistic @mpt.amax_history : tensor<9x1024xf32> = dense<0.0
// DELAYED: train.state statistic @mpt.tensor_scales : tensor<9xf32> = dense<1.0
// DELAYED-LABEL: func.func @step
// DELAYED: %[[SCALES:.*]] = train.read @mpt.tensor_scales
// DELAYED: mpt.slice %[[SCALES]] {sizes = array<i64: 1>, starts = array<i64: 8>
// DELAYED: %[[OLD:.*]] = train.read @mpt.amax_history
// DELAYED: %[[ROLLED:.*]] = train.roll %[[OLD]]
// DELAYED: train.tensor_scale %{{.*}}, %[[SCALES]] {largest = 4.480000e+02 : f64} : tensor<9xf32>
// DELAYED: train.write @mpt.amax_history, %[[ROLLED]] if
// DELAYED: train.write @mpt.tensor_scales, %{{.*}} if
// DELAYED-LABEL: func.func @evaluate
// DELAYED: train.read @mpt.tensor_scales
// DELAYED-NOT: mpt.reduce
// DELAYED-NOT: starts = array<i64: 6>

// The first and the last layer stay f16; the gradient of the middle one is rounded stochastically, and so are parameters.
// E5M2: train.state parameter @b : tensor<16x16xf16>
// E5M2: train.state slot @b.momentum : tensor<16x16xf16>
// E5M2: train.state rng @mpt.rounding : tensor<2xi64>
// E5M2: train.state scale @mpt.scale_steps : tensor<i32>
// E5M2-LABEL: func.func @step
// E5M2: %[[KEY:.*]] = train.read @mpt.rounding
// E5M2: mpt.matmul {{.*}} : (tensor<8x4xf16>, tensor<4x16xf16>) -> tensor<8x16xf16>
// E5M2: mpt.matmul {{.*}} : (tensor<8x16xf8E5M2>, tensor<16x16xf8E5M2>) -> tensor<8x16xf16>
// E5M2: mpt.matmul {{.*}} : (tensor<8x16xf16>, tensor<16x2xf16>) -> tensor<8x2xf32>
// E5M2: mpt.cast %{{.*}} key %[[KEY]] : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = [[S:[0-9]+]] : i64} : tensor<8x16xf16> to tensor<8x16xf8E5M2>
// E5M2: mpt.matmul {{.*}} : (tensor<8x16xf8E5M2>, tensor<8x16xf8E5M2>) -> tensor<16x16xf16>
// E5M2: mpt.cast %{{.*}} key %[[KEY]] {{.*}} tensor<4x16xf16> to tensor<4x16xf8E5M2>
// E5M2: train.unscale
// E5M2: mpt.cast %{{.*}} key %[[KEY]] : tensor<2xi64> {overflow = #mpt<overflow saturate>, rounding = #mpt<rounding stochastic>, stream = {{[0-9]+}} : i64} : tensor<16x16xf32> to tensor<16x16xf16>
// E5M2: %[[NEXT:.*]], %{{.*}}, %{{.*}} = train.update_scale
// E5M2: train.floor_scale %[[NEXT]]

// A product of two activations stays in the storage type.
// ATTENTION-LABEL: func.func @scores
// ATTENTION: mpt.matmul {{.*}} : (tensor<8x4xf8E4M3FN>, tensor<4x16xf8E4M3FN>)
// ATTENTION: mpt.matmul {{.*}} : (tensor<8x16xbf16>, tensor<8x16xbf16>)
module {
  train.state parameter @a : tensor<4x16xf32> = dense<0.25> : tensor<4x16xf32>
  func.func @scores(%x: tensor<8x4xf32>) -> tensor<8x8xf32> {
    %a = train.read @a : tensor<4x16xf32>
    %0 = mpt.matmul %x, %a : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32> loc("q")
    %1 = mpt.matmul %0, %0 {transpose_b = true} : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x8xf32> loc("scores")
    return %1 : tensor<8x8xf32>
  }
}
