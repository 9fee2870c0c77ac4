// SPDX-License-Identifier: Apache-2.0
// Patterns that bring core ops into simpler forms.
#ifndef MPT_DIALECT_MPT_SIMPLIFY_H
#define MPT_DIALECT_MPT_SIMPLIFY_H

namespace mlir {
class RewritePatternSet;
} // namespace mlir

namespace mpt {

/// Adds patterns that need no knowledge of the graph and change no bit of a result, but for the order in which a
/// GEMM of many rows sums: x * 1, x / 1, x - 0, x + -0, x^1, x^2, -(-x); broadcasts, transposes and reductions that
/// only reshape; transposes of matrices into the flags of GEMMs; batches of GEMMs with one repeated matrix into
/// one GEMM.
void populateSimplifyPatterns(mlir::RewritePatternSet &patterns);
/// Of these, broadcasts and transposes that only reshape, and transposes of matrices.
void populateViewPatterns(mlir::RewritePatternSet &patterns);

} // namespace mpt

#endif // MPT_DIALECT_MPT_SIMPLIFY_H
