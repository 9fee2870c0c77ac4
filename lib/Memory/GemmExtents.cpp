// SPDX-License-Identifier: Apache-2.0
// Extents along memory, rounded up: into the padding of aligned rows, or into copies.
#include "GemmExtents.h"

#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

struct Extents {
  int64_t m, k, n;
};

int64_t sizeOf(const Matrix &x) { return elementBytes(bufferTypeOf(x.memref).getElementType()); }

Extents extentsOf(const GemmMatrices &call) { return {call.a.rows, call.a.cols, call.b.cols}; }

/// Rounds up the extent along memory of each matrix.
Extents roundedExtents(GemmMatrices call, int64_t bytes) {
  Extents e = extentsOf(call);
  auto round = [&](Matrix x, int64_t &rows, int64_t &cols) {
    int64_t &extent = x.isByRows() ? cols : rows;
    extent = llvm::alignTo(extent, std::max<int64_t>(1, bytes / sizeOf(x)));
  };
  round(call.a, e.m, e.k);
  round(call.b, e.k, e.n);
  round(call.d, e.m, e.n);
  return e;
}

class Rounder {
public:
  Rounder(Location loc, BufferizationState &state) : loc(loc), state(state) {}

  /// Whether `inner` elements of a row are this plan's own: the matrix is a whole buffer whose rows are as far apart.
  static bool hasRoom(Matrix x, int64_t inner) {
    auto [root, offset] = rootOf(x.memref);
    if (!root.getDefiningOp<rt::AllocOp>() || offset != 0 || x.pitch() < inner)
      return false;
    MemRefType type = bufferTypeOf(root);
    Sizes strides = stridesOf(type);
    return type.getRank() >= 2 && strides.back() == 1 && strides[strides.size() - 2] == x.pitch() &&
           type.getShape().back() == x.inner() && type.getNumElements() == x.inner() * x.outer();
  }

  /// Whether the matrix has to move to become as large as `to`.
  static bool moves(Matrix x, Matrix to) {
    return to.outer() != x.outer() || (to.inner() != x.inner() && !hasRoom(x, to.inner()));
  }
  /// Bytes that it has then.
  static int64_t copied(Matrix x, int64_t rows, int64_t cols) {
    return moves(x, sized(x, rows, cols)) ? rows * cols * sizeOf(x) : 0;
  }

  /// An operand with zeros behind it.
  void operand(Matrix &x, int64_t rows, int64_t cols) {
    Matrix to = sized(x, rows, cols);
    if (!moves(x, to)) {
      if (to.inner() != x.inner())
        clear(x, to.inner());
    } else {
      place(to);
      // Rows behind the last one, or all of it, of which the copy leaves some.
      const int64_t from = to.inner() == x.inner() ? x.outer() : 0;
      rt::ZeroOp::create(
          state.builder, loc,
          state.view(loc, to.memref, {to.outer() - from, to.inner()}, {to.inner(), 1}, from * to.inner()));
      // By rows, so that one kernel copies either way.
      auto shown = [&](Matrix from) { return state.view(loc, from.memref, {x.outer(), x.inner()}, {from.pitch(), 1}); };
      state.convert(loc, shown(x), shown(to));
    }
    x = to;
  }

  /// A result with room behind it.
  void result(Matrix &x, int64_t rows, int64_t cols) {
    Matrix to = sized(x, rows, cols);
    if (moves(x, to))
      place(to);
    x = to;
  }

private:
  Value space(const Matrix &x, int64_t outer, int64_t inner) {
    Sizes shape{outer, inner};
    Type element = bufferTypeOf(x.memref).getElementType();
    return state.allocate(loc, bufferType(shape, element, denseStrides(shape, rowMajor(2))));
  }
  static Matrix sized(Matrix x, int64_t rows, int64_t cols) {
    x.rows = rows;
    x.cols = cols;
    return x;
  }
  /// Gives the matrix a buffer of its own.
  void place(Matrix &x) {
    x.memref = space(x, x.outer(), x.inner());
    x.pitch() = x.inner();
  }
  /// Zeros from the end of each row up to `inner`.
  void clear(Matrix x, int64_t inner) {
    int64_t more = inner - x.inner();
    Value zeros = space(x, x.outer(), more);
    rt::ZeroOp::create(state.builder, loc, zeros);
    state.convert(loc, zeros, state.view(loc, x.memref, {x.outer(), more}, {x.pitch(), 1}, x.inner()));
  }

  Location loc;
  BufferizationState &state;
};

} // namespace

void mpt::memory::roundExtents(Location loc, GemmMatrices &call, bool isOwn, BufferizationState &state) {
  const BufferizationPolicy &policy = state.policy;
  const auto [m, k, n] = extentsOf(call);
  const Extents e = roundedExtents(call, policy.extentBytes);
  const int64_t work = 2 * m * k * n;
  if ((e.m == m && e.k == k && e.n == n) || std::min({m, k, n}) < policy.extentBytes ||
      work < policy.workWorthRounding || sizeOf(call.a) != 2 || sizeOf(call.b) != 2)
    return;
  const int64_t bytes = Rounder::copied(call.a, e.m, e.k) + Rounder::copied(call.b, e.k, e.n) +
                        (isOwn ? 0 : Rounder::copied(call.d, e.m, e.n));
  if (work / policy.workOfCopiedByte < bytes)
    return;
  Rounder rounding(loc, state);
  rounding.operand(call.a, e.m, e.k);
  rounding.operand(call.b, e.k, e.n);
  rounding.result(call.d, e.m, e.n);
}
