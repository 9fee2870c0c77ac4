// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --memory-verify-alignment=smallest=65536 -o /dev/null

// A matrix that a GEMM writes and another one reads has rows at multiples of 16 bytes on a GPU; the kernel between them takes both, in
// vectors. Results of the function lie as the caller has them.
// CHECK-LABEL: func.func @logits
// GPU: rt.alloc : memref<512x1001xbf16, strided<[1008, 1]>>
// GPU: rt.alloc : memref<512x1001xbf16, strided<[1008, 1]>>
// CPU: rt.alloc : memref<512x1001xbf16>{{$}}
// CPU: rt.alloc : memref<512x1001xbf16>{{$}}
func.func @logits(%x: tensor<512x64xbf16>, %v: tensor<1001x64xbf16>) -> tensor<512x64xbf16> {
  %l = library.gemm %x, %v {transpose_b = true} : tensor<512x64xbf16>, tensor<1001x64xbf16> -> tensor<512x1001xbf16>
  %p = mpt.fusion(%l) : (tensor<512x1001xbf16>) -> tensor<512x1001xbf16> {
  ^bb0(%a: tensor<512x1001xbf16>):
    %m = mpt.reduce max %a {axes = array<i64: 1>} : (tensor<512x1001xbf16>) -> tensor<512xbf16>
    %b = mpt.broadcast %m {dims = array<i64: 0>} : (tensor<512xbf16>) -> tensor<512x1001xbf16>
    %d = mpt.sub %a, %b : tensor<512x1001xbf16>
    mpt.yield %d : tensor<512x1001xbf16>
  }
  %y = library.gemm %p, %v : tensor<512x1001xbf16>, tensor<1001x64xbf16> -> tensor<512x64xbf16>
  return %y : tensor<512x64xbf16>
}

// A reader that wants the tensor dense, such as a view that merges columns with rows, keeps it so.
// CHECK-LABEL: func.func @flat
// CHECK: rt.alloc : memref<32x50xf32>{{$}}
func.func @flat(%x: tensor<32x64xf32>, %v: tensor<64x50xf32>) -> tensor<1600xf32> {
  %l = library.gemm %x, %v : tensor<32x64xf32>, tensor<64x50xf32> -> tensor<32x50xf32>
  %f = mpt.reshape %l : (tensor<32x50xf32>) -> tensor<1600xf32>
  %r = mpt.fusion(%f) : (tensor<1600xf32>) -> tensor<1600xf32> {
  ^bb0(%a: tensor<1600xf32>):
    %s = mpt.add %a, %a : tensor<1600xf32>
    mpt.yield %s : tensor<1600xf32>
  }
  return %r : tensor<1600xf32>
}
