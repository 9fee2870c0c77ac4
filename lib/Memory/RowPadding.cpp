// SPDX-License-Identifier: Apache-2.0
// Which tensors get rows that begin at aligned addresses: the stride grows, the shape does not.
// Matcher: fusions, GEMMs and recurrences, which take any strides, by their operands' numbers.
#include "RowPadding.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/StridedView.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// Readers of a tensor that lies like `as`.
struct Readers {
  bool multiply = false; ///< one of them is a GEMM
  bool takeStrides = true;

  void visit(Value tensor, const Strided &as) {
    for (OpOperand &use : tensor.getUses()) {
      Operation *user = use.getOwner();
      if (auto gemm = dyn_cast<library::GemmOp>(user)) {
        bool matrix = use.get() == gemm.getA() || use.get() == gemm.getB();
        multiply |= matrix;
        takeStrides &= matrix && use.get() != gemm.getAux() && use.get() != gemm.getBias();
      } else if (auto view = dyn_cast<StridedView>(user)) {
        std::optional<Strided> shown = view.viewOf(as);
        takeStrides &= shown.has_value();
        if (shown)
          visit(user->getResult(0), *shown);
      } else if (isa<RecurrenceOp, RecurrenceBackwardOp>(user)) {
        multiply |= use.getOperandNumber() == 1; // the weights
      } else {
        takeStrides &= isa<FusionOp>(user);
      }
    }
  }
};

} // namespace

MemRefType mpt::memory::withAlignedRows(MemRefType type, int64_t alignment) {
  int64_t rank = type.getRank(), bytes = elementBytes(type.getElementType());
  Sizes shape(type.getShape());
  if (rank < 2 || shape.back() <= 1 || type.getNumElements() == 0 || alignment % bytes != 0 ||
      !sameAddresses(shape, stridesOf(type), denseStrides(shape, rowMajor(rank))))
    return type;
  shape.back() = llvm::alignTo(shape.back() * bytes, alignment) / bytes;
  return bufferType(type.getShape(), type.getElementType(), denseStrides(shape, rowMajor(rank)));
}

bool mpt::memory::wantsAlignedRows(Value tensor, MemRefType type) {
  auto maker = tensor.getDefiningOp<library::GemmOp>();
  if (!maker && !tensor.getDefiningOp<FusionOp>())
    return false;
  Readers readers;
  readers.visit(tensor, {Sizes(type.getShape()), stridesOf(type), 0});
  bool written = maker && tensor == maker.getD() && !maker.exchangesDense();
  return readers.takeStrides && (readers.multiply || written) && (!maker || written);
}
