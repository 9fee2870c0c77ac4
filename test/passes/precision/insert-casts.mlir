// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign --precision-insert-casts | FileCheck %s --check-prefix=MLP
// RUN: mpt-opt %s --split-input-file --precision-assign --precision-insert-casts | FileCheck %s
// RUN: not mpt-opt %s --precision-insert-casts 2>&1 | FileCheck %s --check-prefix=ALONE

// ALONE: expected the decisions of precision-assign, got none: run it first

// One cast of the input serves forward and backward; the weights are read wide and cast until they are stored narrow.
// MLP-LABEL: func.func @step({{.*}} attributes {mpt.lossy_casts = 4 : i64}
// MLP: %[[W:.*]] = train.read @fc1.weight {{.*}} : tensor<5x4xf32>
// MLP: %[[X16:.*]] = mpt.cast %arg0 : tensor<8x4xf32> to tensor<8x4xf16>
// MLP: %[[W16:.*]] = mpt.cast %[[W]] : tensor<5x4xf32> to tensor<5x4xf16>
// MLP: mpt.matmul %[[X16]], %[[W16]] {{.*}} : (tensor<8x4xf16>, tensor<5x4xf16>) -> tensor<8x5xf16>
// MLP: mpt.relu {{.*}} : tensor<8x5xf16>
// MLP: mpt.matmul %{{.*}}, %[[X16]] {{.*}}transpose_a = true} : (tensor<8x5xf16>, tensor<8x4xf16>) -> tensor<5x4xf16>
// MLP: mpt.cast {{.*}} : tensor<5x4xf16> to tensor<5x4xf32>
// MLP: train.gradient @fc1.weight
// MLP: mpt.cast {{.*}} : tensor<3x5xf16> to tensor<3x5xf32>
// MLP-NOT: mpt.cast
// MLP: return

// Mask sentinels: values beyond f16 go to its largest finite value, -inf stays; small values keep their sign.
// CHECK-LABEL: func.func @sentinels
// CHECK-DAG: mpt.constant dense<-6.550400e+04> : tensor<16x16xf16> {mpt.range = "1 beyond f16's range, now its largest finite value"}
// CHECK-DAG: mpt.constant dense<0xFC00> : tensor<16x16xf16>{{$}}
// CHECK-DAG: mpt.constant dense<-5.960460e-08> : tensor<16x16xf16> {mpt.range = "1 below f16's range, now its smallest subnormal"}
// CHECK-NOT: mpt.constant {{.*}} tensor<16x16xf32>
func.func @sentinels(%a: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %mask = mpt.constant dense<-1.0e9> : tensor<16x16xf32>
  %inf = mpt.constant dense<0xFF800000> : tensor<16x16xf32>
  %tiny = mpt.constant dense<-1.0e-12> : tensor<16x16xf32>
  %0 = mpt.matmul %a, %a : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %1 = mpt.add %0, %mask : tensor<16x16xf32>
  %2 = mpt.add %1, %inf : tensor<16x16xf32>
  %3 = mpt.add %2, %tiny : tensor<16x16xf32>
  %4 = mpt.softmax %3 {axis = 1} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %5 = mpt.matmul %4, %a : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %5 : tensor<16x16xf32>
}

// -----

// A wide copy made for the forward pass is not kept for the backward pass: widening is exact and is done again.
// CHECK-LABEL: func.func @widen_again
// CHECK: %[[P:.*]] = mpt.matmul {{.*}} -> tensor<16x16xf16>
// CHECK: %[[E:.*]] = mpt.cast %[[P]] : tensor<16x16xf16> to tensor<16x16xf32>
// CHECK: mpt.exp %[[E]]
// CHECK: mpt.seed
// CHECK: %[[B:.*]] = mpt.cast %[[P]] : tensor<16x16xf16> to tensor<16x16xf32>
// CHECK: mpt.pow %[[B]]
func.func @widen_again(%a: tensor<16x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) {
  %0 = mpt.matmul %a, %a : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %1 = mpt.exp %0 : tensor<16x16xf32>
  %2 = mpt.matmul %0, %0 : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %seed = mpt.constant dense<1.0> : tensor<16x16xf32> {mpt.seed}
  %3 = mpt.pow %0, %seed : tensor<16x16xf32>
  return %1, %2, %3 : tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>
}
