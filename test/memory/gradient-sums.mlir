// RUN: mpt-opt %s --from=fusion --to=kernels --target=cuda | FileCheck %s

// Both sums come with the gradient; the kernel that wants them reads neither it nor the norm's input where they are
// numbers.
// CHECK-LABEL: func.func @norm
// CHECK: %[[SUMS:.*]] = rt.alloc : memref<2x16xf32>
// CHECK: rt.conv backward_data %[[DX:[0-9a-z]+]], %{{.*}}, %{{.*}} sums %[[SUMS]] : memref<2x16xf32> norm %[[X:[0-9a-z]+]], %{{.*}}, %{{.*}}, %arg4, %arg5 : memref<4x16x16x16xbf16
// CHECK: rt.launch @[[SUMMING:kernel[0-9]+]](%{{[0-9]+}}, %[[X]], %{{[0-9]+}}, %arg4, %arg5, %[[DX]], %
// CHECK: func.func private @[[SUMMING]](
// CHECK-SAME: mpt.guarded = array<i64: 1, 5>
// CHECK-NOT: mpt.guarded
func.func @norm(%dy: tensor<4x8x16x16xbf16>, %w: tensor<8x16x3x3xbf16>, %v: tensor<4x3x16x16xbf16>, %u: tensor<16x3x3x3xbf16>, %s: tensor<16xf32>, %b: tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) {
  %x = mpt.conv %v, %u {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x3x16x16xbf16>, tensor<16x3x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %y, %m, %var = mpt.batch_norm %x, %s, %b {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  %r = mpt.relu %y : tensor<4x16x16x16xbf16>
  %g = mpt.conv_backward_data %dy, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_high = array<i64: 1, 1>, pads_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<4x8x16x16xbf16>, tensor<8x16x3x3xbf16>) -> tensor<4x16x16x16xbf16>
  %masked = mpt.relu_backward %g, %r : tensor<4x16x16x16xbf16>
  %dx, %ds, %db = mpt.batch_norm_backward %masked, %x, %s, %m, %var {epsilon = 1.0e-5} : (tensor<4x16x16x16xbf16>, tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> (tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>)
  return %dx, %ds, %db : tensor<4x16x16x16xbf16>, tensor<16xf32>, tensor<16xf32>
}
