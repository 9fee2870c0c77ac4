// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda | FileCheck %s --check-prefixes=CHECK,GPU
// RUN: mpt-opt %s --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels | FileCheck %s --check-prefixes=CHECK,CPU

// Products forward and backward of a head with 1,025 classes: 1,032 on a GPU. Logits have room behind their rows, which is
// zeroed before it is multiplied; weights are copied, and so the gradient of the weights has room for more rows.
// CHECK-LABEL: func.func @head
// GPU: %[[V:.*]] = rt.alloc : memref<1032x1024xbf16>
// GPU: %[[BEHIND:.*]] = rt.view %[[V]][1049600] : memref<1032x1024xbf16> to memref<7x1024xbf16>
// GPU: rt.zero %[[BEHIND]]
// GPU: rt.launch @{{.*}}(%arg1,
// GPU: rt.gemm {{.*}} : memref<1024x1024xbf16>, memref<1024x1032xbf16, strided<[1, 1024]>>, memref<1024x1032xbf16>
// GPU: %[[LAST:.*]] = rt.view %{{.*}}[1025] : memref<1024x1025xbf16, strided<[1032, 1]>> to memref<1024x7xbf16, strided<[1032, 1]>>
// GPU: rt.launch @{{.*}}(%{{.*}}, %[[LAST]])
// GPU: rt.gemm {{.*}} : memref<1024x1032xbf16>, memref<1032x1024xbf16>, memref<1024x1024xbf16>
// GPU: rt.gemm {{.*}} : memref<1032x1024xbf16, strided<[1, 1032]>>, memref<1024x1024xbf16>, memref<1032x1024xbf16>
// CPU: rt.gemm {{.*}} : memref<1024x1024xbf16>, memref<1024x1025xbf16, strided<[1, 1024]>>, memref<1024x1025xbf16>
// CPU: rt.gemm {{.*}} : memref<1024x1025xbf16>, memref<1025x1024xbf16>, memref<1024x1024xbf16>
// CPU: rt.gemm {{.*}} : memref<1025x1024xbf16, strided<[1, 1025]>>, memref<1024x1024xbf16>, memref<1025x1024xbf16>
func.func @head(%x: tensor<1024x1024xbf16>, %v: tensor<1025x1024xbf16>) -> (tensor<1024x1024xbf16>, tensor<1025x1024xbf16>) {
  %l = library.gemm %x, %v {transpose_b = true} : tensor<1024x1024xbf16>, tensor<1025x1024xbf16> -> tensor<1024x1025xbf16>
  %p = mpt.fusion(%l) : (tensor<1024x1025xbf16>) -> tensor<1024x1025xbf16> {
  ^bb0(%a: tensor<1024x1025xbf16>):
    %m = mpt.reduce max %a {axes = array<i64: 1>} : (tensor<1024x1025xbf16>) -> tensor<1024xbf16>
    %b = mpt.broadcast %m {dims = array<i64: 0>} : (tensor<1024xbf16>) -> tensor<1024x1025xbf16>
    %d = mpt.sub %a, %b : tensor<1024x1025xbf16>
    mpt.yield %d : tensor<1024x1025xbf16>
  }
  %dx = library.gemm %p, %v : tensor<1024x1025xbf16>, tensor<1025x1024xbf16> -> tensor<1024x1024xbf16>
  %dv = library.gemm %p, %x {transpose_a = true} : tensor<1024x1025xbf16>, tensor<1024x1024xbf16> -> tensor<1025x1024xbf16>
  %s = mpt.fusion(%dv) : (tensor<1025x1024xbf16>) -> tensor<1025x1024xbf16> {
  ^bb0(%a: tensor<1025x1024xbf16>):
    %d = mpt.add %a, %a : tensor<1025x1024xbf16>
    mpt.yield %d : tensor<1025x1024xbf16>
  }
  return %dx, %s : tensor<1024x1024xbf16>, tensor<1025x1024xbf16>
}

// A result that has a place, or readers who want it dense, is copied from one with room.
// CHECK-LABEL: func.func @placed
// GPU: %[[D:.*]] = rt.alloc : memref<1024x1032xbf16>
// GPU: rt.gemm {{.*}} : memref<1024x1024xbf16>, memref<1024x1032xbf16>, memref<1024x1032xbf16>
// GPU: %[[PART:.*]] = rt.view %[[D]][0] : memref<1024x1032xbf16> to memref<1024x1025xbf16, strided<[1032, 1]>>
// GPU: rt.launch @{{.*}}(%[[PART]], %arg2)
func.func @placed(%x: tensor<1024x1024xbf16>, %v: tensor<1024x1025xbf16>) -> tensor<1024x1025xbf16> {
  %l = library.gemm %x, %v : tensor<1024x1024xbf16>, tensor<1024x1025xbf16> -> tensor<1024x1025xbf16>
  return %l : tensor<1024x1025xbf16>
}

// Rows alone may be any number. Fewer operations than a launch is worth, and FP32, stay as they are.
// CHECK-LABEL: func.func @rows
// CHECK: rt.gemm {{.*}} : memref<1025x1024xbf16>, memref<1024x1024xbf16>, memref<1025x1024xbf16>
func.func @rows(%x: tensor<1025x1024xbf16>, %v: tensor<1024x1024xbf16>) -> tensor<1025x1024xbf16> {
  %l = library.gemm %x, %v : tensor<1025x1024xbf16>, tensor<1024x1024xbf16> -> tensor<1025x1024xbf16>
  return %l : tensor<1025x1024xbf16>
}

// CHECK-LABEL: func.func @small
// CHECK: rt.gemm {{.*}}memref<1024x1023xbf16{{.*}}>{{$}}
func.func @small(%x: tensor<1024x1024xbf16>, %v: tensor<1024x1023xbf16>) -> tensor<1024x1023xbf16> {
  %l = library.gemm %x, %v : tensor<1024x1024xbf16>, tensor<1024x1023xbf16> -> tensor<1024x1023xbf16>
  return %l : tensor<1024x1023xbf16>
}

// CHECK-LABEL: func.func @wide
// CHECK: rt.gemm {{.*}}memref<1024x1025xf32{{.*}}>{{$}}
func.func @wide(%x: tensor<1024x1024xf32>, %v: tensor<1024x1025xf32>) -> tensor<1024x1025xf32> {
  %l = library.gemm %x, %v : tensor<1024x1024xf32>, tensor<1024x1025xf32> -> tensor<1024x1025xf32>
  return %l : tensor<1024x1025xf32>
}
