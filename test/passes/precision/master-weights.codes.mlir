// RUN: mpt-opt %s --precision-assign='policy=fp32 slots=i8' --precision-insert-casts --precision-master-weights | FileCheck %s
// RUN: mpt-opt %s --precision-assign='policy=amp-bf16 slots=f8' --precision-insert-casts --precision-master-weights | FileCheck %s --check-prefix=F8
// RUN: mpt-opt %s --precision-assign='policy=fp32 slots=i8' --precision-master-weights --debug-only=precision-master-weights 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// RUN: not mpt-opt %S/Inputs/mlp.mlir --precision-assign='policy=fp32 slots=i8' --precision-master-weights 2>&1 | FileCheck %s --check-prefix=NONE

// First moments have codes of both signs, sums of squares of one; both have scales.
// CHECK: parameter @w : tensor<32x128xf32>
// CHECK: slot @w.moment1 : tensor<32x128xui8> of "w"
// CHECK-NEXT: slot @w.moment1.scale : tensor<16xf32> of "w"
// CHECK-NEXT: {{.*}}slot @w.moment2 : tensor<32x128xui8> of "w"
// CHECK-NEXT: slot @w.moment2.scale : tensor<16xf32> of "w"
// CHECK: slot @b.moment1 : tensor<128xf32>
// CHECK-LABEL: func.func @step
// CHECK: %[[C:.*]] = train.read @w.moment1 : tensor<32x128xui8>
// CHECK: %[[S:.*]] = train.read @w.moment1.scale : tensor<16xf32>
// CHECK: %[[M:.*]] = mpt.decode_blocks %[[C]], %[[S]] : (tensor<32x128xui8>, tensor<16xf32>) -> tensor<32x128xf32>
// CHECK: %[[V:.*]] = mpt.decode_blocks %{{.*}}, %{{.*}} {is_signed = false}
// CHECK: %{{.*}}, %[[M1:.*]], %[[V1:.*]] = mpt.adam %{{.*}}, %[[M]], %[[V]]
// CHECK: %[[C1:.*]], %[[S1:.*]] = mpt.encode_blocks %[[M1]] : (tensor<32x128xf32>) -> (tensor<32x128xui8>, tensor<16xf32>)
// CHECK-DAG: train.write @w.moment1, %[[C1]]
// CHECK-DAG: train.write @w.moment1.scale, %[[S1]]
// CHECK: mpt.encode_blocks %[[V1]] {is_signed = false}

// F8: slot @w.moment1 : tensor<32x128xf8E4M3FN>
// F8: slot @w.moment2 : tensor<32x128xf8E4M3FN>
// F8: mpt.decode_blocks {{.*}}{is_signed = false}

// WHY: not in 8 bits: expected 4096 elements and more in blocks of 256, got 128
// NONE: expected optimizer slots that may be i8 for --slots=i8, got none: choose an optimizer with such slots, or leave the flag out
// NONE: 8 bits are for slots of 4096 elements and more, a multiple of 256, that an update reads element by element
module {
  train.state parameter @w : tensor<32x128xf32> = dense<0.5> : tensor<32x128xf32>
  train.state slot @w.moment1 : tensor<32x128xf32> of "w" = dense<0.0> : tensor<32x128xf32>
  train.state slot @w.moment2 : tensor<32x128xf32> of "w" = dense<0.0> : tensor<32x128xf32>
  train.state slot @b.moment1 : tensor<128xf32> of "b" = dense<0.0> : tensor<128xf32>
  func.func @step(%x: tensor<8x32xf32>, %dy: tensor<8x128xf32>, %lr: tensor<f32> {mpt.name = "learning_rate"}) -> tensor<8x128xf32> {
    %w = train.read @w : tensor<32x128xf32>
    %m = train.read @w.moment1 : tensor<32x128xf32>
    %v = train.read @w.moment2 : tensor<32x128xf32>
    %k = train.read @b.moment1 : tensor<128xf32>
    %y = mpt.matmul %x, %w : (tensor<8x32xf32>, tensor<32x128xf32>) -> tensor<8x128xf32>
    %dw = mpt.matmul %x, %dy {transpose_a = true} : (tensor<8x32xf32>, tensor<8x128xf32>) -> tensor<32x128xf32>
    %g = train.gradient @w, %dw : tensor<32x128xf32>
    %t = mpt.constant dense<1> : tensor<i64>
    %new, %m1, %v1 = mpt.adam %w, %g, %lr, %t, %m, %v : (tensor<32x128xf32>, tensor<32x128xf32>, tensor<f32>, tensor<i64>, tensor<32x128xf32>, tensor<32x128xf32>) -> (tensor<32x128xf32>, tensor<32x128xf32>, tensor<32x128xf32>)
    train.write @w, %new : tensor<32x128xf32>
    train.write @w.moment1, %m1 : tensor<32x128xf32>
    train.write @w.moment2, %v1 : tensor<32x128xf32>
    train.write @b.moment1, %k : tensor<128xf32>
    return %y : tensor<8x128xf32>
  }
}
