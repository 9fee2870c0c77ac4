// SPDX-License-Identifier: Apache-2.0
// --memory-assign-destinations: which results are written straight to a state, an output or a part of a concatenation.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Memory/Destinations.h"
#include "passes/memory/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_ASSIGNDESTINATIONS
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct AssignDestinations : mpt::impl::AssignDestinationsBase<AssignDestinations> {
  using AssignDestinationsBase::AssignDestinationsBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        assign(function);
  }

private:
  /// Writes to each op that has places for its operands which of them their makers write there.
  void assign(func::FuncOp function) {
    memory::Destinations destinations(function);
    for (auto fusion : function.getOps<FusionOp>())
      lend(fusion, destinations);
    for (Operation &op : function.front()) {
      if (!isa<PlacesOperands>(op))
        continue;
      SmallVector<int64_t> operands;
      for (OpOperand &use : op.getOpOperands()) {
        SmallVector<Operation *> views;
        if (destinations.chosenFor(memory::makerOf(use, views)) == &use)
          operands.push_back(use.getOperandNumber());
      }
      numAssigned += operands.size();
      if (!operands.empty())
        setAttr<library::LibraryDialect::PlacedAttrHelper>(&op, DenseI64ArrayAttr::get(&getContext(), operands));
    }
  }

  /// Writes to `fusion` which of its results lie in states until the function ends.
  void lend(FusionOp fusion, memory::Destinations &destinations) {
    SmallVector<Attribute> lenders;
    for (OpResult result : fusion->getResults()) {
      FlatSymbolRefAttr state = destinations.lenderFor(result);
      numLent += state ? 1 : 0;
      lenders.push_back(state ? Attribute(state) : UnitAttr::get(&getContext()));
    }
    if (llvm::any_of(lenders, llvm::IsaPred<FlatSymbolRefAttr>))
      setAttr<library::LibraryDialect::LentAttrHelper>(fusion, ArrayAttr::get(&getContext(), lenders));
  }
};

} // namespace
