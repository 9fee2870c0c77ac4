// RUN: mpt-opt %s --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_90 -o /dev/null | FileCheck %s
// RUN: mpt-opt %s --memory-bufferize=target=cuda --lowering-emit-kernels=target=cuda --lowering-emit-ptx=arch=sm_80 -o /dev/null | FileCheck %s --check-prefix=OLD

// Sums of BF16 are made two at a time, without conversions, where the architecture can.
// CHECK-LABEL: .entry kernel0(
// CHECK: ld.global.v4
// CHECK-NOT: cvt.rn.bf16
// CHECK-COUNT-4: add.rn.bf16x2
// CHECK-NOT: .f32
// CHECK: st.global.v4
// OLD-LABEL: .entry kernel0(
// OLD-COUNT-4: cvt.rn.bf16x2.f32
func.func @bfloat16(%x: tensor<1024x64xbf16>, %z: tensor<1024x64xbf16>) -> tensor<1024x64xbf16> {
  %r = mpt.fusion(%x, %z) : (tensor<1024x64xbf16>, tensor<1024x64xbf16>) -> tensor<1024x64xbf16> {
  ^bb0(%a: tensor<1024x64xbf16>, %b: tensor<1024x64xbf16>):
    %s = mpt.add %a, %b : tensor<1024x64xbf16>
    mpt.yield %s : tensor<1024x64xbf16>
  }
  return %r : tensor<1024x64xbf16>
}

// The instruction saturates by itself. sm_80 has none.
// CHECK-LABEL: .entry kernel1(
// CHECK-NOT: max.NaN
// CHECK-COUNT-4: cvt.rn.satfinite.e4m3x2.f32
// CHECK-NOT: setp.gt.f32
// OLD-LABEL: .entry kernel1(
// OLD-NOT: e4m3x2
// OLD: st.global
func.func @saturating(%x: tensor<1024x64xf32>) -> tensor<1024x64xf8E4M3FN> {
  %r = mpt.fusion(%x) : (tensor<1024x64xf32>) -> tensor<1024x64xf8E4M3FN> {
  ^bb0(%a: tensor<1024x64xf32>):
    %s = mpt.cast %a {overflow = #mpt<overflow saturate>} : tensor<1024x64xf32> to tensor<1024x64xf8E4M3FN>
    mpt.yield %s : tensor<1024x64xf8E4M3FN>
  }
  return %r : tensor<1024x64xf8E4M3FN>
}

// Where a cast does not saturate, values beyond the range are put in by a comparison.
// CHECK-LABEL: .entry kernel2(
// CHECK: setp.gt.f32 {{.*}}, 0f43E80000
// CHECK: cvt.rn.satfinite.e4m3x2.f32
func.func @overflowing(%x: tensor<1024x64xf32>) -> tensor<1024x64xf8E4M3FN> {
  %r = mpt.fusion(%x) : (tensor<1024x64xf32>) -> tensor<1024x64xf8E4M3FN> {
  ^bb0(%a: tensor<1024x64xf32>):
    %s = mpt.cast %a : tensor<1024x64xf32> to tensor<1024x64xf8E4M3FN>
    mpt.yield %s : tensor<1024x64xf8E4M3FN>
  }
  return %r : tensor<1024x64xf8E4M3FN>
}

// 8-bit floats become FP16 in pairs.
// CHECK-LABEL: .entry kernel3(
// CHECK-COUNT-4: cvt.rn.f16x2.e4m3x2
// CHECK-NOT: cvt.rn.f16x2.e4m3x2
func.func @widened(%x: tensor<1024x64xf8E4M3FN>) -> tensor<1024x64xf32> {
  %r = mpt.fusion(%x) : (tensor<1024x64xf8E4M3FN>) -> tensor<1024x64xf32> {
  ^bb0(%a: tensor<1024x64xf8E4M3FN>):
    %s = mpt.cast %a : tensor<1024x64xf8E4M3FN> to tensor<1024x64xf32>
    mpt.yield %s : tensor<1024x64xf32>
  }
  return %r : tensor<1024x64xf32>
}

// A softmax: one exponential an element, one reciprocal a row, no branch for a quotient.
// CHECK-LABEL: .entry kernel4(
// CHECK-COUNT-8: ex2.approx.ftz.f32
// CHECK-NOT: ex2.approx
// CHECK: div.full.f32
// CHECK-NOT: div.
func.func @softmax(%x: tensor<4096x256xbf16>) -> tensor<4096x256xbf16> {
  %r = mpt.fusion(%x) : (tensor<4096x256xbf16>) -> tensor<4096x256xbf16> {
  ^bb0(%a: tensor<4096x256xbf16>):
    %wide = mpt.cast %a : tensor<4096x256xbf16> to tensor<4096x256xf32>
    %m = mpt.reduce max %wide {axes = array<i64: 1>} : (tensor<4096x256xf32>) -> tensor<4096xf32>
    %bm = mpt.broadcast %m {dims = array<i64: 0>} : (tensor<4096xf32>) -> tensor<4096x256xf32>
    %d = mpt.sub %wide, %bm : tensor<4096x256xf32>
    %e = mpt.exp %d : tensor<4096x256xf32>
    %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<4096x256xf32>) -> tensor<4096xf32>
    %bs = mpt.broadcast %s {dims = array<i64: 0>} : (tensor<4096xf32>) -> tensor<4096x256xf32>
    %q = mpt.div %e, %bs : tensor<4096x256xf32>
    %n = mpt.cast %q : tensor<4096x256xf32> to tensor<4096x256xbf16>
    mpt.yield %n : tensor<4096x256xbf16>
  }
  return %r : tensor<4096x256xbf16>
}

// An integer is rounded to FP32 and then to BF16, as everywhere else: not once.
// CHECK-LABEL: .entry kernel5(
// CHECK: cvt.rn.f32.s32
// CHECK: cvt.rn.bf16x2.f32
// CHECK-NOT: cvt.rn.bf16.s32
func.func @integers(%x: tensor<7xi32>) -> tensor<7xbf16> {
  %r = mpt.fusion(%x) : (tensor<7xi32>) -> tensor<7xbf16> {
  ^bb0(%a: tensor<7xi32>):
    %s = mpt.cast %a : tensor<7xi32> to tensor<7xbf16>
    mpt.yield %s : tensor<7xbf16>
  }
  return %r : tensor<7xbf16>
}

// Pairs of BF16 are converted at once, and read by a shift and a mask. A product of two may be too small for FP32.
// CHECK-LABEL: .entry kernel6(
// CHECK: ld.global.v4
// CHECK: and.b32 {{.*}}, -65536
// CHECK: shl.b32 {{.*}}, 16
// CHECK-COUNT-4: cvt.rn.bf16x2.f32
// CHECK-NOT: cvt.rn.bf16
// CHECK: st.global.v4
func.func @product(%x: tensor<1024x64xbf16>, %z: tensor<1024x64xbf16>) -> tensor<1024x64xbf16> {
  %r = mpt.fusion(%x, %z) : (tensor<1024x64xbf16>, tensor<1024x64xbf16>) -> tensor<1024x64xbf16> {
  ^bb0(%a: tensor<1024x64xbf16>, %b: tensor<1024x64xbf16>):
    %s = mpt.mul %a, %b : tensor<1024x64xbf16>
    mpt.yield %s : tensor<1024x64xbf16>
  }
  return %r : tensor<1024x64xbf16>
}

// A position is compared with a label of 64 bits in the 32 bits of indices.
// CHECK-LABEL: .entry kernel7(
// CHECK-COUNT-8: setp.{{eq|ne}}.b32
// CHECK-NOT: setp.{{eq|ne}}.b64
// CHECK: st.global
func.func @labels(%x: tensor<4096x256xf32>, %l: tensor<4096xi64>) -> tensor<4096x256xbf16> {
  %r = mpt.fusion(%x, %l) : (tensor<4096x256xf32>, tensor<4096xi64>) -> tensor<4096x256xbf16> {
  ^bb0(%a: tensor<4096x256xf32>, %b: tensor<4096xi64>):
    %at = mpt.iota {axis = 1 : i64} : () -> tensor<4096x256xi64>
    %label = mpt.broadcast %b {dims = array<i64: 0>} : (tensor<4096xi64>) -> tensor<4096x256xi64>
    %hit = mpt.compare eq %at, %label : tensor<4096x256xi64>
    %zero = mpt.constant dense<0.0> : tensor<4096x256xf32>
    %s = mpt.select %hit, %a, %zero : tensor<4096x256xi1>, tensor<4096x256xf32>
    %n = mpt.cast %s : tensor<4096x256xf32> to tensor<4096x256xbf16>
    mpt.yield %n : tensor<4096x256xbf16>
  }
  return %r : tensor<4096x256xbf16>
}

// Rows share operands that depend on their lanes alone: four rows a thread, one load of the scale.
// CHECK-LABEL: .entry kernel8(
// CHECK-COUNT-2: ld.global.v4.b32
// CHECK-COUNT-4: ld.global.v4.b32
// CHECK-NOT: ld.global
// CHECK-COUNT-4: st.global.v4
func.func @scaled(%x: tensor<65536x256xbf16>, %s: tensor<256xf32>) -> tensor<65536x256xbf16> {
  %r = mpt.fusion(%x, %s) : (tensor<65536x256xbf16>, tensor<256xf32>) -> tensor<65536x256xbf16> {
  ^bb0(%a: tensor<65536x256xbf16>, %b: tensor<256xf32>):
    %wide = mpt.cast %a : tensor<65536x256xbf16> to tensor<65536x256xf32>
    %scale = mpt.broadcast %b {dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<65536x256xf32>
    %p = mpt.mul %wide, %scale : tensor<65536x256xf32>
    %n = mpt.cast %p : tensor<65536x256xf32> to tensor<65536x256xbf16>
    mpt.yield %n : tensor<65536x256xbf16>
  }
  return %r : tensor<65536x256xbf16>
}
