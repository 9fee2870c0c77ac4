// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=bf16-kahan --precision-insert-casts --precision-master-weights | FileCheck %s
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign='policy=bf16-sr slots=bf16' --precision-insert-casts --precision-master-weights | FileCheck %s --check-prefix=SLOTS
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign='policy=fp32 slots=bf16' --precision-insert-casts --precision-master-weights | FileCheck %s --check-prefix=FP32
// RUN: not mpt-opt %S/Inputs/mlp.mlir --precision-assign='policy=bf16-sr slots=f16' --precision-insert-casts --precision-master-weights 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not mpt-opt %S/Inputs/mlp.mlir --precision-assign=slots=f4 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: mpt-opt %s --split-input-file --precision-assign=policy=bf16-kahan --precision-insert-casts --precision-master-weights --verify-diagnostics

// The forward pass reads the parameter alone; the update starts from it and its remainder.
// CHECK: parameter @fc1.weight : tensor<5x4xbf16> = dense<2.500000e-01>
// CHECK-NEXT: slot @fc1.weight.remainder : tensor<5x4xbf16> of "fc1.weight"
// CHECK: slot @fc1.weight.momentum : tensor<5x4xf32>
// CHECK-LABEL: func.func @step
// CHECK: %[[W:.*]] = train.read @fc1.weight {{.*}} : tensor<5x4xbf16>
// CHECK: %[[STORED:.*]] = train.read @fc1.weight : tensor<5x4xbf16>
// CHECK: %[[WIDE:.*]] = mpt.cast %[[STORED]] : tensor<5x4xbf16> to tensor<5x4xf32>
// CHECK: %[[KEPT:.*]] = train.read @fc1.weight.remainder : tensor<5x4xbf16>
// CHECK: %[[REST:.*]] = mpt.cast %[[KEPT]] : tensor<5x4xbf16> to tensor<5x4xf32>
// CHECK: %[[FAR:.*]] = mpt.abs %[[REST]]
// CHECK: %[[SIZE:.*]] = mpt.abs %[[WIDE]]
// CHECK: %[[UNIT:.*]] = mpt.constant dense<3.906250e-03>
// CHECK: %[[HALF:.*]] = mpt.mul %[[SIZE]], %[[UNIT]]
// CHECK: %[[FITS:.*]] = mpt.compare le %[[FAR]], %[[HALF]]
// CHECK: %[[SUM:.*]] = mpt.add %[[WIDE]], %[[REST]]
// CHECK: %[[OLD:.*]] = mpt.select %[[FITS]], %[[SUM]], %[[WIDE]]
// CHECK: mpt.matmul %{{.*}}, %[[W]]
// CHECK: %[[NEW:.*]], %{{.*}} = mpt.sgd %[[OLD]]
// CHECK: %[[NARROW:.*]] = mpt.cast %[[NEW]] {overflow = #mpt<overflow saturate>} : tensor<5x4xf32> to tensor<5x4xbf16>
// CHECK: train.write @fc1.weight, %[[NARROW]]
// CHECK: %[[BACK:.*]] = mpt.cast %[[NARROW]] : tensor<5x4xbf16> to tensor<5x4xf32>
// CHECK: %[[LEFT:.*]] = mpt.sub %[[NEW]], %[[BACK]]
// CHECK: %[[NEXT:.*]] = mpt.cast %[[LEFT]] : tensor<5x4xf32> to tensor<5x4xbf16>
// CHECK: train.write @fc1.weight.remainder, %[[NEXT]]
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT: remainder

// SLOTS: slot @fc1.weight.momentum : tensor<5x4xbf16>
// SLOTS-LABEL: func.func @step
// SLOTS: %[[NEW:.*]], %[[MOMENTUM:.*]] = mpt.sgd
// SLOTS: %[[NARROW:.*]] = mpt.cast %[[MOMENTUM]] key %{{.*}} {overflow = #mpt<overflow saturate>, rounding = #mpt<rounding stochastic>
// SLOTS: train.write @fc1.weight.momentum, %[[NARROW]]

// FP32: parameter @fc1.weight : tensor<5x4xf32>
// FP32: slot @fc1.weight.momentum : tensor<5x4xbf16>

// The optimizer of this file does not say that its state may be f16.
// NONE: expected optimizer slots that may be f16 for --slots=f16, got none: choose an optimizer with such slots, or leave the flag out
// TYPE: expected f32, f16, bf16, i8 or f8 for the type of slots, got f4

module {
  // expected-error @below {{expected no state named w.remainder, which the rest of each rounding needs}}
  train.state parameter @w : tensor<4x4xf32> = dense<0.1> : tensor<4x4xf32>
  train.state slot @w.remainder : tensor<4x4xf32> = dense<0.1> : tensor<4x4xf32>
  func.func @step(%x: tensor<4x4xf32>) {
    %w = train.read @w : tensor<4x4xf32>
    %y = mpt.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    train.write @w, %y : tensor<4x4xf32>
    return
  }
}
