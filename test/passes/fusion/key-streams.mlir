// RUN: mpt-opt %s --fusion-key-streams | FileCheck %s
// RUN: mpt-opt %s --fusion-key-streams --fusion-form --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s --check-prefix=KERNELS
// RUN: mpt-opt %s --fusion-key-streams --debug-only=fusion-key-streams 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: fusion-key-streams: {{.*}}: not a table: expected ops of two streams or more, got one

// One table of keys; the casts differ in nothing but the row they read, and share a kernel.
// CHECK-LABEL: func.func @two
// CHECK-DAG: %[[STREAMS:.*]] = mpt.constant dense<{{\[\[}}0, 30064771072], [0, 38654705664]]> : tensor<2x2xi64>
// CHECK-DAG: %[[KEYS:.*]] = mpt.broadcast %arg2
// CHECK: %[[ALL:.*]] = mpt.add %[[KEYS]], %[[STREAMS]] : tensor<2x2xi64>
// CHECK: %[[SEVEN:.*]] = mpt.reshape
// CHECK: %[[NINE:.*]] = mpt.reshape
// CHECK: mpt.cast %arg0 key %[[SEVEN]] : tensor<2xi64> {rounding = #mpt<rounding stochastic>{{(, stream = 0 : i64)?}}}
// CHECK: mpt.cast %arg1 key %[[NINE]] : tensor<2xi64> {rounding = #mpt<rounding stochastic>{{(, stream = 0 : i64)?}}}
// KERNELS-LABEL: func.func @two
// KERNELS: rt.launch @[[K:kernel[0-9]+]](%{{.*}})
// KERNELS: rt.launch @[[CAST:kernel[0-9]+]](%{{.*}})
// KERNELS: rt.launch @[[CAST]](%{{.*}})
func.func @two(%x: tensor<64xf32>, %y: tensor<64xf32>, %k: tensor<2xi64>) -> (tensor<64xf16>, tensor<64xf16>) {
  %a = mpt.cast %x key %k : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 7 : i64} : tensor<64xf32> to tensor<64xf16>
  %b = mpt.cast %y key %k : tensor<2xi64> {rounding = #mpt<rounding stochastic>, stream = 9 : i64} : tensor<64xf32> to tensor<64xf16>
  return %a, %b : tensor<64xf16>, tensor<64xf16>
}

// A stream alone stays as it is.
// CHECK-LABEL: func.func @one
// CHECK-NOT: mpt.add
// CHECK: stream = 3
// KERNELS-LABEL: func.func @one
func.func @one(%x: tensor<64xf32>, %k: tensor<2xi64>) -> tensor<64xf32> {
  %u = mpt.dropout %x, %k {ratio = 0.5 : f64, stream = 3 : i64} : (tensor<64xf32>, tensor<2xi64>) -> tensor<64xf32>
  return %u : tensor<64xf32>
}
