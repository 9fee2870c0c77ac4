// SPDX-License-Identifier: Apache-2.0
// --library-choose-layouts: the order of dimensions in which every value lies in memory.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Interfaces/LayoutPreference.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define DEBUG_TYPE "library-choose-layouts"

namespace mpt {
#define GEN_PASS_DEF_CHOOSELAYOUTS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct ChooseLayouts : mpt::impl::ChooseLayoutsBase<ChooseLayouts> {
  using ChooseLayoutsBase::ChooseLayoutsBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        choose(function.front());
  }

private:
  void choose(Block &body) {
    LayoutChoice choice;
    for (Operation &op : llvm::reverse(body))
      if (auto preference = dyn_cast<LayoutPreference>(op))
        preference.wishLayouts(choice);
    for (Operation &op : body)
      if (auto preference = dyn_cast<LayoutPreference>(op))
        preference.giveLayouts(choice);
    for (Operation &op : body)
      if (auto preference = dyn_cast<LayoutPreference>(op); preference && preference.ownsResults())
        note(&op, choice);
  }

  /// Writes the decision to `op`; row-major results alone need none.
  void note(Operation *op, const LayoutChoice &choice) {
    Builder builder(op->getContext());
    SmallVector<Attribute> layouts;
    bool isDefault = true;
    for (Value result : op->getResults()) {
      Order usual = rowMajor(tensorType(result).getRank()), order = choice.orderOf(result).value_or(usual);
      isDefault &= order == usual;
      layouts.push_back(library::LayoutAttr::get(op->getContext(), order));
      if (auto wish = choice.wishFor(result); wish && wish->order != order)
        (void)(refuse(DEBUG_TYPE, op) << "not as a reader wants it: expected "
                                      << library::LayoutAttr::get(op->getContext(), wish->order) << ", got "
                                      << layouts.back());
    }
    if (isDefault)
      return;
    ++numChosen;
    setAttr<library::LibraryDialect::LayoutsAttrHelper>(op, builder.getArrayAttr(layouts));
  }
};

} // namespace
