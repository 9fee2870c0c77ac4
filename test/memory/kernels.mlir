// RUN: mpt-opt %s --library-schedule-updates --library-convert-calls --library-fold-scales=result-scales --library-fold-epilogues --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --memory-verify-plan | FileCheck %s

train.state parameter @w : tensor<4x8xf32> = dense<2.0> : tensor<4x8xf32>

// An update writes over its parameter, and runs as soon as the gradient is there and the old value has been read.
// CHECK-LABEL: func.func @step
// CHECK-DAG: %[[W:.*]] = rt.state @w
// CHECK: rt.gemm {{.*}} into %[[G:[^ ]*]]
// CHECK: rt.gemm %{{.*}}, %[[W]] into
// CHECK: rt.launch @[[UPDATE:kernel[0-9]+]](%[[W]], %[[G]], %[[W]])
// CHECK: rt.gemm
// CHECK: return
func.func @step(%x: tensor<2x4xf32>, %d: tensor<2x8xf32>, %a: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %w = train.read @w : tensor<4x8xf32>
  %g = mpt.matmul %x, %d {transpose_a = true} : (tensor<2x4xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %y = mpt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  %z = mpt.matmul %d, %a : (tensor<2x8xf32>, tensor<8x8xf32>) -> tensor<2x8xf32>
  %new = mpt.fusion(%w, %g) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>, %q: tensor<4x8xf32>):
    %s = mpt.sub %p, %q : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  train.write @w, %new : tensor<4x8xf32>
  return %y, %z : tensor<2x8xf32>, tensor<2x8xf32>
}

// Equal fusions on equal layouts share a kernel.
// CHECK-LABEL: func.func @shared
// CHECK: rt.launch @[[SHARED:kernel[0-9]+]](
// CHECK: rt.launch @[[SHARED]](
func.func @shared(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %c = mpt.fusion(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.exp %p : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  %d = mpt.fusion(%b) : (tensor<4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%p: tensor<4x8xf32>):
    %s = mpt.exp %p {note = "other"} : tensor<4x8xf32>
    mpt.yield %s : tensor<4x8xf32>
  }
  return %c, %d : tensor<4x8xf32>, tensor<4x8xf32>
}

// Bias and ReLU become the GEMM's epilogue; in BF16 it rounds the GEMM and the sum, as the ops do.
// CHECK-LABEL: func.func @epilogue
// CHECK: rt.gemm {{.*}} bias %{{.*}} {epilogue = #library.epilogue<activation = relu>}
// CHECK-NOT: rt.launch
// CHECK: return
func.func @epilogue(%x: tensor<2x4xf32>, %w: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<2x8xf32> {
  %y = mpt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
  %r = mpt.fusion(%y, %b) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32> {
  ^bb0(%p: tensor<2x8xf32>, %q: tensor<8xf32>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<2x8xf32>
    %s = mpt.add %p, %l : tensor<2x8xf32>
    %a = mpt.relu %s : tensor<2x8xf32>
    mpt.yield %a : tensor<2x8xf32>
  }
  return %r : tensor<2x8xf32>
}
// A number that an FP32 GEMM is multiplied by before it is rounded to f16 is read by the GEMM, through views; not
// where the FP32 GEMM has other readers.
// CHECK-LABEL: func.func @scaled
// CHECK: rt.gemm {{.*}} scale %{{.*}} : memref<f32> into {{.*}}, memref<2x8xf16
// CHECK-NOT: rt.launch
// CHECK: return
func.func @scaled(%x: tensor<2x4xf16>, %w: tensor<4x8xf16>, %f: tensor<f32>) -> tensor<16xf16> {
  %y = mpt.matmul %x, %w {numerics = #mpt.numerics<in = f16, acc = f32, out = f32>} : (tensor<2x4xf16>, tensor<4x8xf16>) -> tensor<2x8xf32>
  %v = mpt.reshape %y : (tensor<2x8xf32>) -> tensor<16xf32>
  %r = mpt.fusion(%f, %v) : (tensor<f32>, tensor<16xf32>) -> tensor<16xf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<16xf32>):
    %b = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<16xf32>
    %m = mpt.mul %q, %b : tensor<16xf32>
    %h = mpt.cast %m : tensor<16xf32> to tensor<16xf16>
    mpt.yield %h : tensor<16xf16>
  }
  return %r : tensor<16xf16>
}
// CHECK-LABEL: func.func @scaled_and_read
// CHECK: rt.gemm %{{[^ ]*}}, %{{[^ ]*}} into %{{[^ ]*}} : {{.*}}, memref<2x8xf32>
// CHECK: rt.launch
func.func @scaled_and_read(%x: tensor<2x4xf16>, %w: tensor<4x8xf16>, %f: tensor<f32>) -> (tensor<2x8xf16>, tensor<2x8xf32>) {
  %y = mpt.matmul %x, %w {numerics = #mpt.numerics<in = f16, acc = f32, out = f32>} : (tensor<2x4xf16>, tensor<4x8xf16>) -> tensor<2x8xf32>
  %r = mpt.fusion(%f, %y) : (tensor<f32>, tensor<2x8xf32>) -> tensor<2x8xf16> {
  ^bb0(%p: tensor<f32>, %q: tensor<2x8xf32>):
    %b = mpt.broadcast %p {dims = array<i64>} : (tensor<f32>) -> tensor<2x8xf32>
    %m = mpt.mul %q, %b : tensor<2x8xf32>
    %h = mpt.cast %m : tensor<2x8xf32> to tensor<2x8xf16>
    mpt.yield %h : tensor<2x8xf16>
  }
  return %r, %y : tensor<2x8xf16>, tensor<2x8xf32>
}
// CHECK-LABEL: func.func @narrow
// CHECK: rt.gemm {{.*}} bias %{{.*}} {epilogue = #library.epilogue<round = true>}
// CHECK-NOT: rt.launch
// CHECK: return
func.func @narrow(%x: tensor<2x4xbf16>, %w: tensor<4x8xbf16>, %b: tensor<8xbf16>) -> tensor<2x8xbf16> {
  %y = mpt.matmul %x, %w : (tensor<2x4xbf16>, tensor<4x8xbf16>) -> tensor<2x8xbf16>
  %r = mpt.fusion(%y, %b) : (tensor<2x8xbf16>, tensor<8xbf16>) -> tensor<2x8xbf16> {
  ^bb0(%p: tensor<2x8xbf16>, %q: tensor<8xbf16>):
    %l = mpt.broadcast %q {dims = array<i64: 1>} : (tensor<8xbf16>) -> tensor<2x8xbf16>
    %s = mpt.add %p, %l : tensor<2x8xbf16>
    mpt.yield %s : tensor<2x8xbf16>
  }
  return %r : tensor<2x8xbf16>
}

// A kernel between convolutions keeps their layout; an image is rearranged once for both its readers.
// CHECK-LABEL: func.func @image
// CHECK: %[[X:.*]] = rt.alloc at {{.*}} : memref<2x3x8x8xf32, strided<[192, 1, 24, 3]>>
// CHECK: rt.launch @{{.*}}(%{{.*}}, %[[X]])
// CHECK: rt.conv forward %[[X]]
// CHECK: rt.launch {{.*}} : memref<2x8x6x6xf32, strided<[288, 1, 48, 8]>>, memref<2x8x6x6xf32, strided<[288, 1, 48, 8]>>
// CHECK: rt.conv backward_weights %[[X]]
func.func @image(%x: tensor<2x3x8x8xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<8x3x3x3xf32> {
  %y = mpt.conv %x, %w {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<8x3x3x3xf32>) -> tensor<2x8x6x6xf32>
  %r = mpt.fusion(%y) : (tensor<2x8x6x6xf32>) -> tensor<2x8x6x6xf32> {
  ^bb0(%p: tensor<2x8x6x6xf32>):
    %s = mpt.relu %p : tensor<2x8x6x6xf32>
    mpt.yield %s : tensor<2x8x6x6xf32>
  }
  %g = mpt.conv_backward_weights %x, %r {strides = array<i64: 1, 1>, dilations = array<i64: 1, 1>, pads_low = array<i64: 0, 0>, pads_high = array<i64: 0, 0>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<2x8x6x6xf32>) -> tensor<8x3x3x3xf32>
  return %g : tensor<8x3x3x3xf32>
}
