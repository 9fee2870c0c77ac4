// RUN: mpt-opt %s --split-input-file --precision-assign=policy=amp-bf16 --precision-insert-casts '--precision-master-weights=packed=f16,bf16 packed-from=32' | FileCheck %s
// RUN: mpt-opt %s --split-input-file --precision-assign=policy=amp-bf16 --precision-insert-casts '--precision-master-weights=packed=f16,bf16 packed-from=32' --debug-only=precision-master-weights 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// RUN: mpt-opt %s --split-input-file --precision-assign=policy=amp-bf16 --precision-insert-casts --precision-master-weights=packed=f16 | FileCheck %s --check-prefix=OTHER
// RUN: not mpt-opt %s --split-input-file --precision-assign=policy=amp-bf16 --precision-insert-casts '--precision-master-weights=packed=f16 packs-some=true' 2>&1 | FileCheck %s --check-prefix=NONE

// The GEMM's parameter stays FP32 and is cast where it is read. A small one has a copy.
// WHY: not packed: expected GEMMs that round to 'bf16', and 32 elements
// CHECK: parameter @w : tensor<8x4xf32> = dense<5.000000e-01> : tensor<8x4xf32> {library.packed = bf16
// CHECK-NOT: @w.master
// CHECK: master @small.master
// CHECK: parameter @small : tensor<4x2xbf16>
// CHECK: %[[W:.*]] = train.read @w {{.*}}: tensor<8x4xf32>
// CHECK: mpt.cast %[[W]] : tensor<8x4xf32> to tensor<8x4xbf16>
// CHECK: %[[NEW:.*]] = mpt.sgd %[[W]]
// CHECK: train.write @w, %[[NEW]] {{.*}}: tensor<8x4xf32>
// A target whose GEMMs want bf16 in memory.
// OTHER-NOT: library.packed
// OTHER: master @w.master
// NONE: expected a parameter whose readers all round it for --masters=packed, got none: leave the flag out
train.state parameter @w : tensor<8x4xf32> = dense<0.5> : tensor<8x4xf32>
train.state parameter @small : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
func.func @step(%x: tensor<8x8xf32>, %dy: tensor<8x2xf32>, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> tensor<8x2xf32> {
  %w = train.read @w : tensor<8x4xf32>
  %s = train.read @small : tensor<4x2xf32>
  %h = mpt.matmul %x, %w : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %y = mpt.matmul %h, %s : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  %dh = mpt.matmul %dy, %s {transpose_b = true} : (tensor<8x2xf32>, tensor<4x2xf32>) -> tensor<8x4xf32>
  %dw = mpt.matmul %x, %dh {transpose_a = true} : (tensor<8x8xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  %ds = mpt.matmul %h, %dy {transpose_a = true} : (tensor<8x4xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %g = train.gradient @w, %dw : tensor<8x4xf32>
  %k = train.gradient @small, %ds : tensor<4x2xf32>
  %t = mpt.constant dense<1> : tensor<i64>
  %new = mpt.sgd %w, %g, %lr, %t : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<f32>, tensor<i64>) -> tensor<8x4xf32>
  train.write @w, %new : tensor<8x4xf32>
  %news = mpt.sgd %s, %k, %lr, %t : (tensor<4x2xf32>, tensor<4x2xf32>, tensor<f32>, tensor<i64>) -> tensor<4x2xf32>
  train.write @small, %news : tensor<4x2xf32>
  return %y : tensor<8x2xf32>
}

// -----

// A kernel reads the rounded parameter too: there is a copy for it.
// WHY: not packed: expected readers that round by themselves, got mpt.mul
// CHECK: master @w.master
// CHECK-NOT: library.packed
train.state parameter @w : tensor<8x8xf32> = dense<0.5> : tensor<8x8xf32>
func.func @step(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %w = train.read @w : tensor<8x8xf32>
  %h = mpt.matmul %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = mpt.mul %h, %w : tensor<8x8xf32>
  %y = mpt.matmul %z, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  train.write @w, %y : tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
