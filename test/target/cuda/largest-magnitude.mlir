// Pooling's largest magnitude is a maximum of two numbers at a time, without comparisons: nothing needs a position.
// RUN: mpt-opt %s --lowering-emit-ptx=arch=sm_90 -o /dev/null | FileCheck %s
// RUN: mpt-opt %s --lowering-emit-ptx=arch=sm_80 -o /dev/null | FileCheck %s

// CHECK-LABEL: .entry kernel0(
// CHECK-NOT: set
// CHECK-COUNT-2: max.NaN.bf16x2
// CHECK-NOT: set
// CHECK: st.global
func.func private @kernel0(%x: memref<512xbf16>, %y: memref<256xbf16>) attributes {mpt.block = array<i64: 64, 1, 1>, mpt.grid = array<i64: 1, 1, 1>, mpt.in_place = array<i64>, mpt.kernel, mpt.ops = "max_pool, abs", mpt.schedule = "pointwise", mpt.shared_bytes = 0 : i64} {
  %thread = gpu.thread_id x
  %four = arith.constant 4 : index
  %half = arith.constant 256 : index
  %first = arith.muli %thread, %four : index
  %second = arith.addi %first, %half : index
  %zero = arith.constant dense<0> : vector<4xi16>
  %one = arith.constant dense<1> : vector<4xi16>
  %a = vector.load %x[%first] : memref<512xbf16>, vector<4xbf16>
  %b = vector.load %x[%second] : memref<512xbf16>, vector<4xbf16>
  %more = arith.cmpf ogt, %b, %a : vector<4xbf16>
  %nan = arith.cmpf uno, %b, %b : vector<4xbf16>
  %takes = arith.ori %more, %nan : vector<4xi1>
  %best = arith.select %takes, %b, %a : vector<4xi1>, vector<4xbf16>
  %where = arith.select %takes, %one, %zero : vector<4xi1>, vector<4xi16>
  %wide = arith.extui %where : vector<4xi16> to vector<4xi32>
  %magnitude = math.absf %best : vector<4xbf16>
  vector.store %magnitude, %y[%first] : memref<256xbf16>, vector<4xbf16>
  return
}

// Where the position is needed, the comparison is there anyway.
// CHECK-LABEL: .entry kernel1(
// CHECK-NOT: max.NaN
// CHECK: st.global
// CHECK: st.global
func.func private @kernel1(%x: memref<512xbf16>, %y: memref<256xbf16>, %z: memref<256xi16>) attributes {mpt.block = array<i64: 64, 1, 1>, mpt.grid = array<i64: 1, 1, 1>, mpt.in_place = array<i64>, mpt.kernel, mpt.ops = "max_pool, abs", mpt.schedule = "pointwise", mpt.shared_bytes = 0 : i64} {
  %thread = gpu.thread_id x
  %four = arith.constant 4 : index
  %half = arith.constant 256 : index
  %first = arith.muli %thread, %four : index
  %second = arith.addi %first, %half : index
  %zero = arith.constant dense<0> : vector<4xi16>
  %one = arith.constant dense<1> : vector<4xi16>
  %a = vector.load %x[%first] : memref<512xbf16>, vector<4xbf16>
  %b = vector.load %x[%second] : memref<512xbf16>, vector<4xbf16>
  %more = arith.cmpf ogt, %b, %a : vector<4xbf16>
  %nan = arith.cmpf uno, %b, %b : vector<4xbf16>
  %takes = arith.ori %more, %nan : vector<4xi1>
  %best = arith.select %takes, %b, %a : vector<4xi1>, vector<4xbf16>
  %where = arith.select %takes, %one, %zero : vector<4xi1>, vector<4xi16>
  %magnitude = math.absf %best : vector<4xbf16>
  vector.store %magnitude, %y[%first] : memref<256xbf16>, vector<4xbf16>
  vector.store %where, %z[%first] : memref<256xi16>, vector<4xi16>
  return
}
