// SPDX-License-Identifier: Apache-2.0
// --batch-invariant in the IR.
#include "mpt/Dialect/MPT/OrderedSums.h"

#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;

static constexpr llvm::StringLiteral key = "batch_invariant";

void mpt::orderSums(ModuleOp module) {
  NamedAttrList entries(getAttr<MPTDialect::ManifestAttrHelper>(module));
  entries.set(key, BoolAttr::get(module.getContext(), true));
  setAttr<MPTDialect::ManifestAttrHelper>(module, entries.getDictionary(module.getContext()));
}

bool mpt::hasOrderedSums(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  DictionaryAttr manifest = module ? getAttr<MPTDialect::ManifestAttrHelper>(module) : DictionaryAttr();
  return manifest && manifest.contains(key);
}
