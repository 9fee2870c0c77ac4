// SPDX-License-Identifier: Apache-2.0
// --memory-verify-alignment: matrices of GEMMs whose rows do not begin at aligned addresses.
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"
#include "passes/memory/Passes.h"

#include <numeric>

namespace mpt {
#define GEN_PASS_DEF_VERIFYALIGNMENT
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Bytes from one row of a matrix to the next: the stride that is not the neighbours'. 0 where there is one row.
int64_t leadingBytes(MemRefType type) {
  memory::Sizes strides = memory::stridesOf(type);
  int64_t rank = type.getRank(), leading = 0;
  for (int64_t d = rank - 2; d < rank; ++d)
    if (type.getDimSize(d) > 1 && strides[d] != 1)
      leading = strides[d];
  bool isVector = type.getDimSize(rank - 1) == 1 || type.getDimSize(rank - 2) == 1;
  return isVector ? 0 : leading * memory::elementBytes(type.getElementType());
}

/// Of an argument of a loop's body: a number of elements that divides where its buffer begins in any pass. Else 0.
int64_t offsetInLoop(Value root) {
  auto argument = dyn_cast<BlockArgument>(root);
  auto loop = argument ? dyn_cast<rt::RepeatOp>(argument.getOwner()->getParentOp()) : rt::RepeatOp();
  if (!loop)
    return 0;
  return std::gcd(memory::rootOf(loop.getBuffer(argument)).second, loop.getAdvance(argument));
}

struct VerifyAlignment : mpt::impl::VerifyAlignmentBase<VerifyAlignment> {
  using VerifyAlignmentBase::VerifyAlignmentBase;

  void runOnOperation() override {
    bool failed = false;
    getOperation().walk([&](rt::GemmOp gemm) {
      std::pair<StringRef, Value> matrices[] = {{"a", gemm.getA()}, {"b", gemm.getB()}, {"d", gemm.getD()}};
      for (auto [name, memref] : matrices) {
        auto [root, offset] = memory::rootOf(memref);
        MemRefType type = memory::bufferTypeOf(memref);
        int64_t size = memory::elementBytes(type.getElementType());
        int64_t rows = leadingBytes(type), first = (offset + offsetInLoop(root)) * size;
        if (memory::spanBytes(type) < smallest || (rows % alignment == 0 && first % alignment == 0))
          continue;
        gemm.emitError() << "expected matrix " << name << " with rows at multiples of " << alignment.getValue()
                         << " bytes, got " << rows << " bytes from row to row, the first at " << first;
        failed = true;
      }
    });
    if (failed)
      return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
