// Floats that become indices are computed wide, up to the GEMM that they come from, unless a rule names the op.
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s --check-prefix=CORE
// RUN: mpt-opt %s --precision-assign="policy=amp-f16 keep-narrow=scaled" | FileCheck %s --check-prefix=NAMED

// CORE-LABEL: func.func @forward
// CORE: mpt.matmul {{.*}}results = [f32], rule = "an index is made of it"
// CORE: mpt.mul {{.*}}operands = [f32, f32], results = [f32], rule = "an index is made of it"
// CORE: mpt.floor {{.*}}results = [f32], rule = "an index is made of it"
// The fraction of the coordinate is a weight like any other.
// CORE: mpt.sub {{.*}}rule = "what flows in may leave the narrow type's range"
// CORE: mpt.matmul {{.*}}operands = [f16, f16]
// NAMED: mpt.mul {{.*}}operands = [f16, f16], results = [f16], rule = "keep-narrow \22scaled\22 -> narrow"
// NAMED: mpt.floor {{.*}}results = [f32], rule = "an index is made of it"
func.func @forward(%x: tensor<4x8xf32> {mpt.name = "x"}, %w: tensor<8x8xf32> {mpt.name = "w"}, %table: tensor<4000x2xf32> {mpt.name = "table"})
    -> (tensor<4x8x2xf32> {mpt.name = "y"}, tensor<4x8xf32> {mpt.name = "part"}) {
  %0 = mpt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %scale = mpt.constant dense<3999.0> : tensor<4x8xf32>
  %1 = mpt.mul %0, %scale : tensor<4x8xf32> loc("scaled")
  %2 = mpt.floor %1 : tensor<4x8xf32>
  %3 = mpt.cast %2 : tensor<4x8xf32> to tensor<4x8xi64>
  %4 = mpt.sub %1, %2 : tensor<4x8xf32>
  %5 = mpt.matmul %4, %w : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %6 = mpt.gather %table, %3 {axis = 0} : (tensor<4000x2xf32>, tensor<4x8xi64>) -> tensor<4x8x2xf32>
  return %6, %5 : tensor<4x8x2xf32>, tensor<4x8xf32>
}

// Scores that choose rows of a table are as exact as indices; scores that choose a class for the caller are not.
// CORE-LABEL: func.func @nearest
// CORE: mpt.matmul {{.*}}results = [f32], rule = "what is looked up is chosen by it"
// CORE: mpt.matmul {{.*}}operands = [f16, f16]
func.func @nearest(%x: tensor<4x8xf32> {mpt.name = "x"}, %table: tensor<16x8xf32> {mpt.name = "table"})
    -> (tensor<4x8xf32> {mpt.name = "y"}, tensor<4xi64> {mpt.name = "class"}) {
  %0 = mpt.matmul %x, %table {transpose_b = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %1 = mpt.arg_reduce %0 {axis = 1 : i64, kind = #mpt<reduce_kind max>} : (tensor<4x16xf32>) -> tensor<4xi64>
  %2 = mpt.gather %table, %1 {axis = 0} : (tensor<16x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  %3 = mpt.matmul %2, %table {transpose_b = true} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %4 = mpt.arg_reduce %3 {axis = 1 : i64, kind = #mpt<reduce_kind max>} : (tensor<4x16xf32>) -> tensor<4xi64>
  return %2, %4 : tensor<4x8xf32>, tensor<4xi64>
}
