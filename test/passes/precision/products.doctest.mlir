// RUN: mpt-opt %s --precision-assign='policy=fp8-hybrid rules="where first -> narrow"' --precision-products | FileCheck %s
// The product in BF16; in 8 bits, with the maxima that its operands' scales follow; and each operand's conversion alone.
// CHECK: measures = {conversions = [{conversion = "8x4xbf16 -> f8E4M3FN", function = "conversion_0"}, {{.*}}product = "mpt.matmul (8x4xf8E4M3FN, 4x2xf8E4M3FN) {transpose_a = false, transpose_b = false} -> 8x2x{{b?}}f{{[0-9]+}}"
// CHECK-LABEL: func.func @product_0_16
// CHECK: mpt.matmul %{{.*}} : (tensor<8x4xbf16>, tensor<4x2xbf16>)
// CHECK-LABEL: func.func @product_0_8
// CHECK: mpt.reduce max {{.*}} mpt.checked
// CHECK: mpt.cast %{{.*}} {overflow = #mpt<overflow saturate>} : tensor<8x4xf32> to tensor<8x4xf8E4M3FN>
// CHECK: mpt.matmul %{{.*}} : (tensor<8x4xf8E4M3FN>, tensor<4x2xf8E4M3FN>) -> tensor<8x2xf32>
// CHECK: mpt.reciprocal
// CHECK-LABEL: func.func @conversion_0
// CHECK-NOT: train.state parameter
module {
  train.state parameter @w : tensor<4x2xf32> = dense<0.5> : tensor<4x2xf32>
  func.func @f(%x: tensor<8x4xf32>) -> tensor<8x2xf32> {
    %w = train.read @w : tensor<4x2xf32>
    %0 = mpt.matmul %x, %w : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
    return %0 : tensor<8x2xf32>
  }
}
