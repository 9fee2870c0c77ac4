// RUN: mpt-opt %s --precision-assign=policy=amp-f16 --precision-insert-casts --precision-master-weights | FileCheck %s
// The GEMM reads the narrow parameter, the update its master; both are written.
// CHECK: train.state{{ +}}master @w.master : tensor<4x2xf32> of "w" = dense<5.000000e-01>
// CHECK: train.state{{ +}}parameter @w : tensor<4x2xf16> {from = "w.master"
// CHECK: %[[NARROW:.*]] = train.read @w {{.*}}: tensor<4x2xf16>
// CHECK: %[[MASTER:.*]] = train.read @w.master : tensor<4x2xf32>
// CHECK: mpt.matmul %{{.*}}, %[[NARROW]]
// CHECK: %[[NEW:.*]] = mpt.sgd %[[MASTER]]
// CHECK: train.write @w.master, %[[NEW]]
// CHECK: %[[COPY:.*]] = mpt.cast %[[NEW]] : tensor<4x2xf32> to tensor<4x2xf16>
// CHECK: train.write @w, %[[COPY]]
train.state parameter @w : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
func.func @step(%x: tensor<8x4xf32>, %dy: tensor<8x2xf32>, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> tensor<8x2xf32> {
  %w = train.read @w : tensor<4x2xf32>
  %y = mpt.matmul %x, %w : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  %dw = mpt.matmul %x, %dy {transpose_a = true} : (tensor<8x4xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %g = train.gradient @w, %dw : tensor<4x2xf32>
  %t = mpt.constant dense<1> : tensor<i64>
  %new = mpt.sgd %w, %g, %lr, %t : (tensor<4x2xf32>, tensor<4x2xf32>, tensor<f32>, tensor<i64>) -> tensor<4x2xf32>
  train.write @w, %new : tensor<4x2xf32>
  return %y : tensor<8x2xf32>
}
