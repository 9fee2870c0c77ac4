// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign --precision-insert-casts --precision-master-weights | FileCheck %s --check-prefix=MLP
// RUN: mpt-opt %s --split-input-file --precision-assign --precision-insert-casts --precision-master-weights --verify-diagnostics | FileCheck %s
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign=policy=fp32 --precision-insert-casts --precision-master-weights | FileCheck %s --check-prefix=FP32

// MLP: master @fc1.weight.master : tensor<5x4xf32> of "fc1.weight" = dense<2.500000e-01>
// MLP: parameter @fc1.weight : tensor<5x4xf16> {from = "fc1.weight.master"
// MLP: slot @fc1.weight.momentum : tensor<5x4xf32>
// MLP-LABEL: func.func @step
// MLP-SAME: mpt.lossy_casts = 4
// MLP: %[[NARROW:.*]] = train.read @fc1.weight {{.*}} : tensor<5x4xf16>
// MLP: %[[MASTER:.*]] = train.read @fc1.weight.master : tensor<5x4xf32>
// MLP: mpt.matmul %{{.*}}, %[[NARROW]]
// MLP: %[[NEW:.*]], %{{.*}} = mpt.sgd %[[MASTER]]
// MLP: train.write @fc1.weight.master, %[[NEW]] {{.*}} : tensor<5x4xf32>
// MLP: %[[COPY:.*]] = mpt.cast %[[NEW]] : tensor<5x4xf32> to tensor<5x4xf16>
// MLP: train.write @fc1.weight, %[[COPY]] : tensor<5x4xf16>
// MLP-LABEL: func.func @evaluate
// MLP: train.read @fc1.weight {{.*}} : tensor<5x4xf16>
// MLP-NOT: .master
// FP32-NOT: state master
// FP32-NOT: mpt.cast

// A parameter that nobody trains has no master: its value is converted.
// CHECK: parameter @w : tensor<4x4xf16> = dense<9.997550e-02> : tensor<4x4xf16> frozen
// CHECK: train.read @w {{.*}} : tensor<4x4xf16>
module {
  train.state parameter @w : tensor<4x4xf32> = dense<0.1> : tensor<4x4xf32> frozen
  func.func @evaluate(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %w = train.read @w : tensor<4x4xf32>
    %y = mpt.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
}

// -----

module {
  // expected-error @below {{expected no parameter named 'w.master', as the FP32 master of 'w' is called: rename it}}
  train.state parameter @w : tensor<4x4xf32> = dense<0.1> : tensor<4x4xf32>
  train.state slot @w.master : tensor<4x4xf32> = dense<0.1> : tensor<4x4xf32>
  func.func @step(%x: tensor<4x4xf32>) {
    %w = train.read @w : tensor<4x4xf32>
    %y = mpt.matmul %x, %w : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    train.write @w, %y : tensor<4x4xf32>
    return
  }
}
