// RUN: mpt-opt %s --fusion-verify-accumulators="tensor-cores=sm_80,sm_89,sm_90,sm_100"
// RUN: mpt-opt %s --fusion-verify-accumulators="tensor-cores=sm_90+fast-sums" --verify-diagnostics
// RUN: not mpt-opt %s --fusion-verify-accumulators="tensor-cores=sm_75" 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// UNKNOWN: expected a Tensor Core of sm_80, sm_89, sm_90, sm_100, sm_89+fast-sums, sm_90+fast-sums, got 'sm_75'

#f32 = #mpt.numerics<in = f8E4M3FN, acc = f32, out = f32>

// Partial sums of 128 products may have 13 bits.
func.func @short(%a: tensor<16x128xf8E4M3FN>, %b: tensor<128x16xf8E4M3FN>) -> tensor<16x16xf32> {
  %y = mpt.matmul %a, %b {numerics = #f32} : (tensor<16x128xf8E4M3FN>, tensor<128x16xf8E4M3FN>) -> tensor<16x16xf32>
  return %y : tensor<16x16xf32>
}

func.func @long(%a: tensor<16x256xf8E4M3FN>, %b: tensor<256x16xf8E4M3FN>) -> tensor<16x16xf32> {
  // expected-error@+1 {{expected partial sums of at most 128 products, which add up in 'f32', got one sum of 256 products in 13 bits on sm_90+fast-sums: widen the operands, or leave fast-sums}}
  %y = mpt.matmul %a, %b {numerics = #f32} : (tensor<16x256xf8E4M3FN>, tensor<256x16xf8E4M3FN>) -> tensor<16x16xf32>
  return %y : tensor<16x16xf32>
}

// Gradients are E5M2, for which the runtime asks for no fast sums; other extents are multiplied in FP16.
func.func @others(%a: tensor<16x256xf8E4M3FN>, %g: tensor<256x16xf8E5M2>, %o: tensor<256x5xf8E4M3FN>) -> (tensor<16x16xf32>, tensor<16x5xf32>) {
  %y = mpt.matmul %a, %g : (tensor<16x256xf8E4M3FN>, tensor<256x16xf8E5M2>) -> tensor<16x16xf32>
  %z = mpt.matmul %a, %o {numerics = #f32} : (tensor<16x256xf8E4M3FN>, tensor<256x5xf8E4M3FN>) -> tensor<16x5xf32>
  return %y, %z : tensor<16x16xf32>, tensor<16x5xf32>
}
