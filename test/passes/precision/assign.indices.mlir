// Floats that become indices are computed wide, up to the GEMM that they come from, unless a rule names the op.
// RUN: mpt-opt %s --precision-assign=policy=amp-f16 | FileCheck %s --check-prefix=CORE
// RUN: mpt-opt %s --precision-assign="policy=amp-f16 keep-narrow=scaled" | FileCheck %s --check-prefix=NAMED

// CORE-LABEL: func.func @forward
// CORE: mpt.matmul {{.*}}results = [f32], rule = "an index is made of it"
// CORE: mpt.mul {{.*}}operands = [f32, f32], results = [f32], rule = "an index is made of it"
// CORE: mpt.floor {{.*}}results = [f32], rule = "an index is made of it"
// What is left of the coordinate is a weight like any other.
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
