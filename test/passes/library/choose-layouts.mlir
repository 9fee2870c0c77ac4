// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts | FileCheck %s
// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --debug-only=library-choose-layouts 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY

// A kernel before a convolution writes the layout that the convolution reads.
// CHECK-LABEL: func.func @wanted
// CHECK: mpt.fusion{{.*}}library.layouts = [#library.layout<[0, 2, 3, 1]>]
// CHECK: library.conv forward {{.*}}library.layouts = [#library.layout<[0, 2, 3, 1]>]
func.func @wanted(%x: tensor<2x3x8x8xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<2x8x6x6xf32> {
  %r = mpt.fusion(%x) : (tensor<2x3x8x8xf32>) -> tensor<2x3x8x8xf32> {
  ^bb0(%p: tensor<2x3x8x8xf32>):
    %s = mpt.relu %p : tensor<2x3x8x8xf32>
    mpt.yield %s : tensor<2x3x8x8xf32>
  }
  %y = mpt.conv %r, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x6x6xf32>
  return %y : tensor<2x8x6x6xf32>
}

// A GEMM writes heads in the order that the reshape behind a transpose needs: rows stay contiguous.
// CHECK-LABEL: func.func @heads
// CHECK: library.gemm {{.*}}library.layouts = [#library.layout<[0, 2, 1, 3]>]
// CHECK: mpt.transpose %{{[0-9a-z]+}} {permutation
func.func @heads(%s: tensor<2x4x8x8xf32>, %v: tensor<2x4x8x16xf32>) -> tensor<16x64xf32> {
  %o = library.gemm %s, %v : tensor<2x4x8x8xf32>, tensor<2x4x8x16xf32> -> tensor<2x4x8x16xf32>
  %t = mpt.transpose %o {permutation = array<i64: 0, 2, 1, 3>} : (tensor<2x4x8x16xf32>) -> tensor<2x8x4x16xf32>
  %flat = mpt.reshape %t : (tensor<2x8x4x16xf32>) -> tensor<16x64xf32>
  return %flat : tensor<16x64xf32>
}

// A convolution gives channels-last data whatever a reshape wants.
// CHECK-LABEL: func.func @refused
// CHECK: library.conv forward {{.*}}library.layouts = [#library.layout<[0, 2, 3, 1]>]
// WHY: library-choose-layouts: {{.*}}: not as a reader wants it: expected #library.layout<[0, 1, 2, 3]>, got #library.layout<[0, 2, 3, 1]>
func.func @refused(%x: tensor<2x3x8x8xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<2x288xf32> {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x6x6xf32>
  %flat = mpt.reshape %y : (tensor<2x8x6x6xf32>) -> tensor<2x288xf32>
  return %flat : tensor<2x288xf32>
}

// Row-major results carry nothing.
// CHECK-LABEL: func.func @plain
// CHECK-NOT: library.layouts
func.func @plain(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %y = library.gemm %a, %b : tensor<4x8xf32>, tensor<8x2xf32> -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}
