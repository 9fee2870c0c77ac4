// RUN: mpt-opt %s --fusion-form --split-input-file | FileCheck %s
// RUN: mpt-opt %s --fusion-form --split-input-file --debug-only=fusion-form 2>&1 >/dev/null | FileCheck %s --check-prefix=WHY
// WHY: fusion-form: {{.*}}: not one kernel with {{.*}}: expected broadcasts from the rows' results to their elements

// A chain with two results is one kernel; the splat constant moves in.
// CHECK-LABEL: func.func @chain
// CHECK: %[[F:.*]]:2 = mpt.fusion(%{{.*}}, %{{.*}}) : (tensor<64x32xf32>, tensor<64x32xf32>) -> (tensor<64x32xf32>, tensor<64x32xf32>)
// CHECK: mpt.constant
// CHECK-NOT: mpt.fusion
// CHECK: return %[[F]]#{{.}}, %[[F]]#{{.}}
func.func @chain(%x: tensor<64x32xf32>, %r: tensor<64x32xf32>) -> (tensor<64x32xf32>, tensor<64x32xf32>) {
  %c = mpt.constant dense<2.0> : tensor<64x32xf32>
  %a = mpt.add %x, %r : tensor<64x32xf32>
  %b = mpt.relu %a : tensor<64x32xf32>
  %d = mpt.mul %b, %c : tensor<64x32xf32>
  return %a, %d : tensor<64x32xf32>, tensor<64x32xf32>
}

// -----

// Constants stand where they are read, wherever the program has them, so that kernels which differ in that are one.
// CHECK-LABEL: func.func @places
// CHECK: ^bb0
// CHECK-NEXT: mpt.relu
// CHECK-NEXT: mpt.constant dense<2.0
// CHECK-NEXT: mpt.mul
// CHECK-NEXT: mpt.constant dense<3.0
// CHECK-NEXT: mpt.add
func.func @places(%x: tensor<64x32xf32>) -> tensor<64x32xf32> {
  %c = mpt.constant dense<3.0> : tensor<64x32xf32>
  %d = mpt.constant dense<2.0> : tensor<64x32xf32>
  %a = mpt.relu %x : tensor<64x32xf32>
  %b = mpt.mul %a, %d : tensor<64x32xf32>
  %e = mpt.add %b, %c : tensor<64x32xf32>
  return %e : tensor<64x32xf32>
}

// -----

// Copies of a cheap op for two readers are one op again where both are of one kernel and FP64.
// CHECK-LABEL: func.func @twins
// CHECK: mpt.reduce
// CHECK: mpt.cast %{{.*}} : tensor<64xf32> to tensor<64xf64>
// CHECK-NOT: mpt.cast %{{.*}} : tensor<64xf32> to tensor<64xf64>
// CHECK: mpt.yield
func.func @twins(%x: tensor<64x256xf64>, %r: tensor<64xf32>) -> tensor<64xf64> {
  %m = mpt.reduce mean %x {axes = array<i64: 1>} : (tensor<64x256xf64>) -> tensor<64xf64>
  %w = mpt.cast %r : tensor<64xf32> to tensor<64xf64>
  %a = mpt.add %m, %w : tensor<64xf64>
  %b = mpt.mul %a, %w : tensor<64xf64>
  return %b : tensor<64xf64>
}

// -----

// Row statistics and their users are one kernel.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-1: mpt.fusion
// CHECK-NOT: mpt.fusion
func.func @rows(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %m = mpt.reduce mean %x {axes = array<i64: 1>} : (tensor<64x256xf32>) -> tensor<64xf32>
  %b = "mpt.broadcast"(%m) {dims = array<i64: 0>} : (tensor<64xf32>) -> tensor<64x256xf32>
  %d = mpt.sub %x, %b : tensor<64x256xf32>
  return %d : tensor<64x256xf32>
}

// -----

// Column statistics end their kernel: the whole tensor is read before they are known.
// CHECK-LABEL: func.func @columns
// CHECK-COUNT-2: mpt.fusion
// CHECK-NOT: mpt.fusion
func.func @columns(%x: tensor<6400x256xf32>) -> tensor<6400x256xf32> {
  %m = mpt.reduce mean %x {axes = array<i64: 0>} : (tensor<6400x256xf32>) -> tensor<256xf32>
  %b = "mpt.broadcast"(%m) {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<6400x256xf32>
  %d = mpt.sub %x, %b : tensor<6400x256xf32>
  return %d : tensor<6400x256xf32>
}

// -----

// The sum needs the GEMM's result and so does the GEMM's consumer: no kernel may wait for itself.
// CHECK-LABEL: func.func @cycle
// CHECK: %[[A:.*]] = mpt.fusion
// CHECK: %[[M:.*]] = mpt.matmul %[[A]]
// CHECK: mpt.fusion({{.*}}%[[M]]
func.func @cycle(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %a = mpt.exp %x : tensor<64x64xf32>
  %m = mpt.matmul %a, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = mpt.add %a, %m : tensor<64x64xf32>
  return %s : tensor<64x64xf32>
}

// -----

// The first sum joins the second's pass over %a, so that the GEMM that reads it has to wait: it comes right behind that
// kernel, not behind everything.
// CHECK-LABEL: func.func @waits
// CHECK: %[[P:.*]] = mpt.matmul %arg0, %arg0
// CHECK: %[[F:.*]]:2 = mpt.fusion({{.*}}%[[P]]
// CHECK: mpt.matmul %[[F]]#{{.}}, %arg1
// CHECK: mpt.matmul %arg1, %[[F]]#{{.}}
// CHECK: mpt.matmul
func.func @waits(%a: tensor<128x128xf32>, %b: tensor<128x128xf32>)
    -> (tensor<128x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>) {
  %s = mpt.add %a, %b : tensor<128x128xf32>
  %early = mpt.matmul %s, %b : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %p = mpt.matmul %a, %a : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %t = mpt.mul %a, %p : tensor<128x128xf32>
  %q = mpt.matmul %b, %t : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %r = mpt.matmul %q, %q : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  return %early, %r, %t : tensor<128x128xf32>, tensor<128x128xf32>, tensor<128x128xf32>
}
