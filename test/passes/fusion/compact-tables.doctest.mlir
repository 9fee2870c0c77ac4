// RUN: mpt-opt %s --fusion-compact-tables | FileCheck %s
// The example of docs/generated/passes.md.
// CHECK: %[[PLACE:.*]] = mpt.scatter_elements %{{.*}}, %arg0, %{{.*}} {axis = 0 : i64} : {{.*}} -> tensor<50257xi32>
// CHECK: %[[OWN:.*]] = mpt.gather %[[PLACE]], %arg0 {axis = 0 : i64} : {{.*}} -> tensor<512xi32>
// CHECK: %[[SUMS:.*]] = mpt.scatter_add %[[OWN]], %arg1 {axis = 0 : i64} : {{.*}} -> tensor<512x768xf32>
// CHECK: %[[ROWS:.*]] = mpt.gather %[[SUMS]], %[[PLACE]] {axis = 0 : i64} : {{.*}} -> tensor<50257x768xf32>
// CHECK: mpt.select %{{.*}}, %[[ROWS]], %{{.*}} : tensor<50257x768xi1>, tensor<50257x768xf32>
func.func @gradient(%ids: tensor<512xi64>, %dy: tensor<512x768xf32>) -> tensor<50257x768xf32> {
  %g = mpt.scatter_add %ids, %dy {axis = 0 : i64} : (tensor<512xi64>, tensor<512x768xf32>) -> tensor<50257x768xf32>
  return %g : tensor<50257x768xf32>
}
