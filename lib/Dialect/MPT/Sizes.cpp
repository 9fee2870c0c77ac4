// SPDX-License-Identifier: Apache-2.0
// Which sizes a module is of stands in its manifest, where the runtime reads it too.
#include "mpt/Dialect/MPT/Sizes.h"

#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;
using namespace mpt;

static constexpr llvm::StringLiteral kSizes = "sizes";

void mpt::setSizes(ModuleOp module, ArrayRef<StringRef> sizes) {
  NamedAttrList entries(getAttr<MPTDialect::ManifestAttrHelper>(module));
  entries.set(kSizes, Builder(module.getContext()).getStrArrayAttr(sizes));
  setAttr<MPTDialect::ManifestAttrHelper>(module, entries.getDictionary(module.getContext()));
}

std::string mpt::nameInSize(StringRef name, StringRef size) { return (name + "[" + size + "]").str(); }

StringRef mpt::nameInFirstSize(StringRef name) {
  return name.take_until([](char c) { return c == '['; });
}

StringRef mpt::sizeOf(func::FuncOp function, ModuleOp module) {
  DictionaryAttr manifest = getAttr<MPTDialect::ManifestAttrHelper>(module);
  auto sizes = manifest ? manifest.getAs<ArrayAttr>(kSizes) : ArrayAttr();
  if (!sizes)
    return "";
  StringRef name = function.getSymName();
  for (auto size : sizes.getAsRange<StringAttr>())
    if (name.ends_with(nameInSize("", size.getValue())))
      return size.getValue();
  return "";
}
