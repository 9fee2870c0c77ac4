// SPDX-License-Identifier: Apache-2.0
// Names of values that survive a change of policy.
#include "mpt/Dialect/MPT/ValueKeys.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mpt;

StringRef mpt::nodeName(Location loc) {
  if (auto named = loc->findInstanceOf<NameLoc>())
    return named.getName().getValue();
  return {};
}

static bool isFloat(Type type) { return isa<FloatType>(getElementTypeOrSelf(type)); }

ValueKeys::ValueKeys(ModuleOp module) {
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    llvm::StringMap<int64_t> seen;
    for (Operation &op : function.getBody().front()) {
      if (isa<CastOp>(op) || llvm::none_of(op.getResultTypes(), isFloat))
        continue;
      std::string prefix =
          (function.getSymName() + "|" + nodeName(op.getLoc()) + "|" + op.getName().getStringRef() + "|").str();
      int64_t occurrence = seen[prefix]++;
      prefixes[&op] = prefix + std::to_string(occurrence) + "|";
    }
  }
}

std::string ValueKeys::of(OpResult value) const {
  auto found = prefixes.find(value.getOwner());
  if (found == prefixes.end() || !isFloat(value.getType()))
    return {};
  return found->second + std::to_string(value.getResultNumber());
}
