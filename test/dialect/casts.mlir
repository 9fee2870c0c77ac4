// SPDX-License-Identifier: Apache-2.0
// Casts that leave their type, and casts back, disappear where they change nothing.
// RUN: mpt-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: @same_type
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>
func.func @same_type(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = mpt.cast %x : tensor<4xf32> to tensor<4xf32>
  // Saturation makes a finite number of infinity.
  // CHECK: %[[FINITE:.*]] = mpt.cast %[[X]] {overflow = #mpt<overflow saturate>}
  %1 = mpt.cast %x {overflow = #mpt<overflow saturate>} : tensor<4xf32> to tensor<4xf32>
  // CHECK: return %[[X]], %[[FINITE]]
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: @there_and_back
// CHECK-SAME: %[[X:.*]]: tensor<4xf16>, %[[E:.*]]: tensor<4xf8E4M3FN>
func.func @there_and_back(%x: tensor<4xf16>, %e: tensor<4xf8E4M3FN>) -> (tensor<4xf16>, tensor<4xf16>, tensor<4xf8E4M3FN>) {
  // CHECK: %[[WIDE:.*]] = mpt.cast %[[X]] : tensor<4xf16> to tensor<4xf32>
  %0 = mpt.cast %x : tensor<4xf16> to tensor<4xf32>
  %1 = mpt.cast %0 : tensor<4xf32> to tensor<4xf16>
  // CHECK: %[[FINITE:.*]] = mpt.cast %[[WIDE]] {overflow = #mpt<overflow saturate>}
  %2 = mpt.cast %0 {overflow = #mpt<overflow saturate>} : tensor<4xf32> to tensor<4xf16>
  // E4M3 has no infinity.
  %3 = mpt.cast %e : tensor<4xf8E4M3FN> to tensor<4xf32>
  %4 = mpt.cast %3 {overflow = #mpt<overflow saturate>} : tensor<4xf32> to tensor<4xf8E4M3FN>
  // CHECK: return %[[X]], %[[FINITE]], %[[E]]
  return %1, %2, %4 : tensor<4xf16>, tensor<4xf16>, tensor<4xf8E4M3FN>
}
