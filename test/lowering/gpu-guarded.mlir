// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_90 -o /dev/null | FileCheck %s --check-prefix=PTX

// Columns whose sums are given and sound are not walked: a thread's loop has no turns where all of its columns are.
// CHECK: func.func private @kernel0(
// CHECK-SAME: mpt.guarded = array<i64: 0>
// CHECK-SAME: mpt.schedule = "columns"
// CHECK: %[[OK:.*]] = arith.cmpf oge
// CHECK: vector.extract %[[OK]]
// CHECK: arith.andi
// CHECK: %[[TURNS:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : index
// CHECK: scf.for {{.*}} to %[[TURNS]]
// CHECK: func.func private @kernel0_1(
// CHECK-NOT: mpt.guarded
// CHECK: arith.select {{.*}} : f32
// PTX: .visible .entry kernel0
// PTX: .visible .entry kernel0_1
func.func @sums(%x: tensor<16384x64xf16>, %given: tensor<64xf32>) -> tensor<64xf32> {
  %r = mpt.fusion(%x, %given) : (tensor<16384x64xf16>, tensor<64xf32>) -> tensor<64xf32> {
  ^bb0(%a: tensor<16384x64xf16>, %g: tensor<64xf32>):
    %zero = mpt.constant dense<0.0> : tensor<64xf32>
    %ok = mpt.compare ge %g, %zero : tensor<64xf32>
    %w = mpt.cast %a : tensor<16384x64xf16> to tensor<16384x64xf32>
    %s = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<16384x64xf32>) -> tensor<64xf32>
    %y = mpt.select %ok, %g, %s : tensor<64xi1>, tensor<64xf32>
    mpt.yield %y : tensor<64xf32>
  }
  return %r : tensor<64xf32>
}

// A sum that anything else reads is wanted everywhere.
// CHECK: func.func private @kernel1(
// CHECK-NOT: mpt.guarded
// CHECK: func.func private @kernel1_1(
func.func @wanted(%x: tensor<16384x64xf16>, %given: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %r:2 = mpt.fusion(%x, %given) : (tensor<16384x64xf16>, tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  ^bb0(%a: tensor<16384x64xf16>, %g: tensor<64xf32>):
    %zero = mpt.constant dense<0.0> : tensor<64xf32>
    %ok = mpt.compare ge %g, %zero : tensor<64xf32>
    %w = mpt.cast %a : tensor<16384x64xf16> to tensor<16384x64xf32>
    %s = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<16384x64xf32>) -> tensor<64xf32>
    %y = mpt.select %ok, %g, %s : tensor<64xi1>, tensor<64xf32>
    mpt.yield %y, %s : tensor<64xf32>, tensor<64xf32>
  }
  return %r#0, %r#1 : tensor<64xf32>, tensor<64xf32>
}

// Columns of which all sums are given, by several conditions, are not walked either.
// CHECK: func.func private @kernel2(
// CHECK-SAME: mpt.guarded = array<i64: 0>
// CHECK: arith.cmpf oge
// CHECK-COUNT-7: arith.andi
// CHECK: arith.cmpf oge
// CHECK-COUNT-8: arith.andi
// CHECK: %[[TURNS:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : index
// CHECK: scf.for {{.*}} to %[[TURNS]]
func.func @several(%x: tensor<16384x64xf16>, %given: tensor<64xf32>, %other: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %r:2 = mpt.fusion(%x, %given, %other) : (tensor<16384x64xf16>, tensor<64xf32>, tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  ^bb0(%a: tensor<16384x64xf16>, %g: tensor<64xf32>, %h: tensor<64xf32>):
    %zero = mpt.constant dense<0.0> : tensor<64xf32>
    %ok = mpt.compare ge %g, %zero : tensor<64xf32>
    %fine = mpt.compare ge %h, %zero : tensor<64xf32>
    %w = mpt.cast %a : tensor<16384x64xf16> to tensor<16384x64xf32>
    %s = mpt.reduce sum %w {axes = array<i64: 0>} : (tensor<16384x64xf32>) -> tensor<64xf32>
    %y = mpt.select %ok, %g, %s : tensor<64xi1>, tensor<64xf32>
    %e = mpt.abs %w : tensor<16384x64xf32>
    %t = mpt.reduce sum %e {axes = array<i64: 0>} : (tensor<16384x64xf32>) -> tensor<64xf32>
    %z = mpt.select %fine, %h, %t : tensor<64xi1>, tensor<64xf32>
    mpt.yield %y, %z : tensor<64xf32>, tensor<64xf32>
  }
  return %r#0, %r#1 : tensor<64xf32>, tensor<64xf32>
}
