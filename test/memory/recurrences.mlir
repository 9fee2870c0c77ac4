// RUN: mpt-opt %s --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --memory-plan --memory-verify-plan | FileCheck %s
// RUN: mpt-opt %s --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --memory-verify-alignment=smallest=1 -o /dev/null
// RUN: mpt-opt %s --memory-bufferize --lowering-emit-kernels | FileCheck %s --check-prefix=CPU

// On a device a recurrence is a loop over its steps: one GEMM and one kernel, whatever their number. The kernel reads the
// step's part of x, adds the sums, and writes gates, cell and state where they belong. The program has nothing per step.
// CPU-LABEL: func.func @lstm(
// CPU: rt.recurrence lstm
// CPU-NOT: rt.gemm
// CHECK-LABEL: func.func @lstm(
// CHECK-SAME: %[[X:.*]]: memref<8192x4x64xbf16>, %[[R:.*]]: memref<64x16xbf16>,
// CHECK: rt.launch @[[START:kernel[0-9]+]]
// CHECK: %[[RT:.*]] = rt.view %[[R]][0] {{.*}} to memref<16x64xbf16, strided<[1, 16]>>
// CHECK: rt.repeat 8192 times
// CHECK-SAME: advancing [0, 0, 0, 256, 256, 256, 256, 0, 0, 0, 0, 0, 256, 256, 256, 256, 64, 64]
// CHECK-NEXT: ^bb0(%[[H:[a-z0-9]+]]: memref<4x16xbf16>, %[[W:[a-z0-9]+]]: memref<16x64xbf16, strided<[1, 16]>>, %[[S:[a-z0-9]+]]: memref<4x64xf32>
// CHECK-NEXT: rt.gemm %[[H]], %[[W]] into %[[S]] : {{.*}}, memref<4x64xf32>
// CHECK-NEXT: rt.launch @{{.*}} {extent = 1 : i64, grain = 1 : i64, num_inputs = 9 : i64}
// CHECK-NEXT: {{^ *}$}}
// CHECK-NOT: rt.{{gemm|launch|repeat}}
func.func @lstm(%x: tensor<8192x4x64xbf16>, %r: tensor<64x16xbf16>, %h0: tensor<4x16xbf16>, %c0: tensor<4x16xf32>) -> (tensor<8192x4x16xbf16>, tensor<8192x4x64xbf16>, tensor<8192x4x16xf32>) {
  %y, %gates, %cells = mpt.recurrence lstm %x, %r, %h0, %c0 : (tensor<8192x4x64xbf16>, tensor<64x16xbf16>, tensor<4x16xbf16>, tensor<4x16xf32>) -> (tensor<8192x4x16xbf16>, tensor<8192x4x64xbf16>, tensor<8192x4x16xf32>)
  return %y, %gates, %cells : tensor<8192x4x16xbf16>, tensor<8192x4x64xbf16>, tensor<8192x4x16xf32>
}

// Backward the loop begins with the last step and goes back. The first step of the sequence has c0 before it, and is made
// behind the loop. Nobody wants the gradient of h0, so its GEMM is left out.
// CHECK-LABEL: func.func @lstm_backward(
// CHECK-COUNT-2: rt.zero
// CHECK: rt.repeat 6 times
// CHECK-SAME: advancing [-64, 0, -256, -256, -256, -256, -64, 0, -64, -256, -256, -256, -256, 0, 0, 0, 0, 0, 0]
// CHECK: rt.launch @[[STEP:kernel[0-9]+]](
// CHECK-NEXT: rt.gemm
// CHECK-NEXT: {{^ *}$}}
// CHECK-NOT: rt.gemm
// CHECK: rt.launch @[[STEP]](
// CHECK-NOT: rt.{{gemm|launch}}
// CHECK: return
func.func @lstm_backward(%dy: tensor<7x4x16xbf16>, %r: tensor<64x16xbf16>, %h0: tensor<4x16xbf16>, %y: tensor<7x4x16xbf16>, %gates: tensor<7x4x64xbf16>, %cells: tensor<7x4x16xf32>, %c0: tensor<4x16xf32>) -> (tensor<7x4x64xbf16>, tensor<4x16xf32>) {
  %dx, %dh0, %dc0 = mpt.recurrence_backward lstm %dy, %r, %h0, %y, %gates, %cells, %c0 : (tensor<7x4x16xbf16>, tensor<64x16xbf16>, tensor<4x16xbf16>, tensor<7x4x16xbf16>, tensor<7x4x64xbf16>, tensor<7x4x16xf32>, tensor<4x16xf32>) -> (tensor<7x4x64xbf16>, tensor<4x16xbf16>, tensor<4x16xf32>)
  return %dx, %dc0 : tensor<7x4x64xbf16>, tensor<4x16xf32>
}

// With its reset first, a GRU has two GEMMs a step, of the parts of its weights. Rows of matrices between GEMMs begin aligned.
// CHECK-LABEL: func.func @reset_first(
// CHECK: rt.repeat 5 times
// CHECK-SAME: -{{[0-9]+}}
// CHECK: rt.gemm {{.*}} : memref<2x12xf16, strided<[16, 1]>>, memref<12x24xf16, strided<[1, 16]>>, memref<2x24xf32>
// CHECK-NEXT: rt.launch
// CHECK-NEXT: rt.gemm {{.*}} : memref<2x12xf16, strided<[16, 1]>>, memref<12x12xf16, strided<[1, 16]>>, memref<2x12xf32>
// CHECK-NEXT: rt.launch
// CHECK-NEXT: {{^ *}$}}
func.func @reset_first(%x: tensor<5x2x36xf16>, %w: tensor<36x12xf32>, %h0: tensor<2x12xf16>) -> tensor<5x2x12xf16> {
  %r = mpt.fusion(%w) : (tensor<36x12xf32>) -> tensor<36x12xf16> {
  ^bb0(%a: tensor<36x12xf32>):
    %n = mpt.cast %a : tensor<36x12xf32> to tensor<36x12xf16>
    mpt.yield %n : tensor<36x12xf16>
  }
  %y, %gates, %kept = mpt.recurrence gru %x, %r, %h0 {reverse} : (tensor<5x2x36xf16>, tensor<36x12xf16>, tensor<2x12xf16>) -> (tensor<5x2x12xf16>, tensor<5x2x36xf16>, tensor<5x2x12xf32>)
  return %y : tensor<5x2x12xf16>
}

// Sequences of one step need no loop backward, and sequences of none have gradients of 0.
// CHECK-LABEL: func.func @one(
// CHECK-NOT: rt.repeat
// CHECK: rt.gemm
// CHECK-NOT: rt.repeat
// CHECK: return
func.func @one(%dy: tensor<1x2x4xf32>, %r: tensor<12x4xf32>, %h0: tensor<2x4xf32>, %y: tensor<1x2x4xf32>, %gates: tensor<1x2x16xf32>) -> tensor<2x4xf32> {
  %dx, %dh0, %inside = mpt.recurrence_backward gru %dy, %r, %h0, %y, %gates : (tensor<1x2x4xf32>, tensor<12x4xf32>, tensor<2x4xf32>, tensor<1x2x4xf32>, tensor<1x2x16xf32>) -> (tensor<1x2x12xf32>, tensor<2x4xf32>, tensor<1x2x4xf32>)
  return %dh0 : tensor<2x4xf32>
}
// CHECK-LABEL: func.func @none(
// CHECK-NOT: rt.repeat
// CHECK: rt.zero
// CHECK-NOT: rt.repeat
// CHECK: return
func.func @none(%dy: tensor<0x2x4xf32>, %r: tensor<4x4xf32>, %h0: tensor<2x4xf32>, %y: tensor<0x2x4xf32>) -> tensor<2x4xf32> {
  %dx, %dh0 = mpt.recurrence_backward tanh %dy, %r, %h0, %y : (tensor<0x2x4xf32>, tensor<4x4xf32>, tensor<2x4xf32>, tensor<0x2x4xf32>) -> (tensor<0x2x4xf32>, tensor<2x4xf32>)
  return %dh0 : tensor<2x4xf32>
}
