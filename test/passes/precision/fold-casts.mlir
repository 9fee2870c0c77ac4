// RUN: mpt-opt %s --precision-fold-casts | FileCheck %s
// RUN: mpt-opt %s --precision-fold-casts --debug-only=precision-fold-casts 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// WHY: precision-fold-casts: {{.*}}not foldable: expected an exact cast before it, got one that rounds 'tensor<4xf32>' to 'tensor<4xbf16>'

// CHECK-LABEL: func.func @exact_pair
// CHECK-SAME: mpt.lossy_casts = 0
// CHECK-NEXT: return %arg0
func.func @exact_pair(%x: tensor<4xf16>) -> tensor<4xf16> attributes {mpt.lossy_casts = 1 : i64} {
  %0 = mpt.cast %x : tensor<4xf16> to tensor<4xf32>
  %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xf16>
  return %1 : tensor<4xf16>
}

// Rounding to bf16 and back is meaning.
// CHECK-LABEL: func.func @lossy_pair
// CHECK: mpt.cast %arg0 : tensor<4xf32> to tensor<4xbf16>
// CHECK: mpt.cast %{{.*}} : tensor<4xbf16> to tensor<4xf32>
func.func @lossy_pair(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = mpt.cast %x : tensor<4xf32> to tensor<4xbf16>
  %1 = mpt.cast %0 : tensor<4xbf16> to tensor<4xf32>
  return %1 : tensor<4xf32>
}

// f32 to f16 to bf16 overflows where f32 to bf16 does not: both stay.
// CHECK-LABEL: func.func @lossy_chain
// CHECK: mpt.cast %arg0 : tensor<4xf32> to tensor<4xf16>
// CHECK: mpt.cast %{{.*}} : tensor<4xf16> to tensor<4xbf16>
func.func @lossy_chain(%x: tensor<4xf32>) -> tensor<4xbf16> {
  %0 = mpt.cast %x : tensor<4xf32> to tensor<4xf16>
  %1 = mpt.cast %0 : tensor<4xf16> to tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// An exact widening before a cast with its own rounding and overflow: one cast, with both.
// CHECK-LABEL: func.func @joined
// CHECK-SAME: mpt.lossy_casts = 1
// CHECK-NEXT: mpt.cast %arg0 {overflow = #mpt<overflow saturate>} : tensor<4xbf16> to tensor<4xf16>
// CHECK-NEXT: return
func.func @joined(%x: tensor<4xbf16>) -> tensor<4xf16> attributes {mpt.lossy_casts = 1 : i64} {
  %0 = mpt.cast %x : tensor<4xbf16> to tensor<4xf32>
  %1 = mpt.cast %0 {overflow = #mpt<overflow saturate>} : tensor<4xf32> to tensor<4xf16>
  return %1 : tensor<4xf16>
}

// A decision about a cast of the file holds for its new operand.
// CHECK-LABEL: func.func @decided
// CHECK-NEXT: mpt.cast %arg0 {mpt.precision = #mpt.precision<operands = [bf16], results = [f16], rule = "r">} : tensor<4xbf16> to tensor<4xf16>
func.func @decided(%x: tensor<4xbf16>) -> tensor<4xf16> {
  %0 = mpt.cast %x : tensor<4xbf16> to tensor<4xf32>
  %1 = mpt.cast %0 {mpt.precision = #mpt.precision<operands = [f32], results = [f16], rule = "r">} : tensor<4xf32> to tensor<4xf16>
  return %1 : tensor<4xf16>
}

// Casts from integers are not touched.
// CHECK-LABEL: func.func @integers
// CHECK: mpt.cast %arg0 : tensor<4xi32> to tensor<4xf32>
// CHECK: mpt.cast %{{.*}} : tensor<4xf32> to tensor<4xi32>
func.func @integers(%x: tensor<4xi32>) -> tensor<4xi32> {
  %0 = mpt.cast %x : tensor<4xi32> to tensor<4xf32>
  %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xi32>
  return %1 : tensor<4xi32>
}
