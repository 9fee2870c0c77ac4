// RUN: mpt-opt %s --fusion-key-streams | FileCheck %s
// The example of docs/generated/passes.md: a cast reads its row of a table of keys.
// CHECK: %[[ALL:.*]] = mpt.add %{{.*}} : tensor<2x2xi64>
// CHECK: %[[ROW:.*]] = mpt.slice %[[ALL]]
// CHECK: %[[OWN:.*]] = mpt.reshape %[[ROW]] : (tensor<1x2xi64>) -> tensor<2xi64>
// CHECK: mpt.cast %arg0 key %[[OWN]] : tensor<2xi64>
func.func @f(%x: tensor<64xf32>, %k: tensor<2xi64>) -> (tensor<64xf16>, tensor<64xf32>) {
  %q = mpt.cast %x key %k : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 7 : i64} : tensor<64xf32> to tensor<64xf16>
  %u = mpt.dropout %x, %k {ratio = 0.5 : f64, stream = 8 : i64} : (tensor<64xf32>, tensor<2xi64>) -> tensor<64xf32>
  return %q, %u : tensor<64xf16>, tensor<64xf32>
}
