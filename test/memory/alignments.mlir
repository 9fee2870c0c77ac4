// RUN: mpt-opt %s --memory-bufferize --lowering-emit-kernels --memory-plan --memory-verify-plan | FileCheck %s
// RUN: mpt-opt %s --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --memory-plan --memory-verify-plan | FileCheck %s
// RUN: mpt-opt %s --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --memory-verify-alignment=smallest=1 -o /dev/null

// CTC's recursion is a loop of one kernel a step on every target, whatever the number of steps: it reads the states that the step
// before left in the result. The first step has none before it.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[E:[a-z0-9]+]]: memref<1600x4x7xf32>, %[[S:[a-z0-9]+]]: memref<4x7xf32>, %[[O:[a-z0-9]+]]: memref<1600x4xf32>
// CHECK: rt.launch @[[FIRST:kernel[0-9]+]](
// CHECK: rt.repeat 1599 times
// CHECK-SAME: advancing [28, 28, 0, 4, 28]
// CHECK-NEXT: ^bb0(%[[A:[a-z0-9]+]]: memref<4x7xf32>, %[[X:[a-z0-9]+]]: memref<4x7xf32>, %[[K:[a-z0-9]+]]: memref<4x7xf32>, %[[R:[a-z0-9]+]]: memref<4xf32>, %[[Y:[a-z0-9]+]]: memref<4x7xf32>)
// CHECK-NEXT: rt.launch @{{kernel[0-9]+}}(%[[A]], %[[X]], %[[K]], %[[R]], %[[Y]])
// CHECK-NEXT: {{^ *}$}}
// CHECK-NOT: rt.{{launch|repeat}}
// CHECK: return
func.func @forward(%e: tensor<1600x4x7xf32>, %s: tensor<4x7xf32>, %o: tensor<1600x4xf32>) -> (tensor<4x7xf32>, tensor<1600x4x7xf32>) {
  %last, %alphas = mpt.alignments %e, %s, %o : (tensor<1600x4x7xf32>, tensor<4x7xf32>, tensor<1600x4xf32>) -> (tensor<4x7xf32>, tensor<1600x4x7xf32>)
  return %last, %alphas : tensor<4x7xf32>, tensor<1600x4x7xf32>
}

// Backward it goes from the last step to the first, in FP64 as well.
// CHECK-LABEL: func.func @backward(
// CHECK: rt.repeat 1599 times
// CHECK-SAME: advancing [-28, -28, 0, -4, -28]
// CHECK: rt.launch @[[STEP:kernel[0-9]+]](
// CHECK-NEXT: {{^ *}$}}
// CHECK-NOT: rt.{{launch|repeat}}
// CHECK: return
func.func @backward(%d: tensor<4x7xf64>, %a: tensor<1600x4x7xf64>, %s: tensor<4x7xf64>, %o: tensor<1600x4xf64>) -> tensor<1600x4x7xf64> {
  %g = mpt.alignments_backward %d, %a, %s, %o : (tensor<4x7xf64>, tensor<1600x4x7xf64>, tensor<4x7xf64>, tensor<1600x4xf64>) -> tensor<1600x4x7xf64>
  return %g : tensor<1600x4x7xf64>
}

// One step needs no loop, and no sequences no kernel.
// CHECK-LABEL: func.func @one(
// CHECK-NOT: rt.repeat
// CHECK: rt.launch @{{kernel[0-9]+}}(
// CHECK-NOT: rt.repeat
// CHECK: return
func.func @one(%e: tensor<1x4x7xf32>, %s: tensor<4x7xf32>, %o: tensor<1x4xf32>) -> tensor<4x7xf32> {
  %last, %alphas = mpt.alignments %e, %s, %o : (tensor<1x4x7xf32>, tensor<4x7xf32>, tensor<1x4xf32>) -> (tensor<4x7xf32>, tensor<1x4x7xf32>)
  return %last : tensor<4x7xf32>
}
// CHECK-LABEL: func.func @none(
// CHECK-NOT: rt.launch
// CHECK: return
func.func @none(%e: tensor<5x0x7xf32>, %s: tensor<0x7xf32>, %o: tensor<5x0xf32>) -> tensor<0x7xf32> {
  %last, %alphas = mpt.alignments %e, %s, %o : (tensor<5x0x7xf32>, tensor<0x7xf32>, tensor<5x0xf32>) -> (tensor<0x7xf32>, tensor<5x0x7xf32>)
  return %last : tensor<0x7xf32>
}
