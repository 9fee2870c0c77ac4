// SPDX-License-Identifier: Apache-2.0
// Decisions as attributes.
#include "mpt/Precision/Decisions.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

static ArrayAttr typeList(Builder &builder, ArrayRef<Type> types, mpt::DecisionCounts &counts) {
  SmallVector<Attribute> list;
  for (Type type : types) {
    list.push_back(type ? Attribute(TypeAttr::get(type)) : builder.getUnitAttr());
    if (type)
      ++(type.isF32() ? counts.wide : counts.narrow);
  }
  return builder.getArrayAttr(list);
}

DictionaryAttr mpt::decisionAttr(Builder &builder, const OpTypes &types, DecisionCounts &counts) {
  SmallVector<NamedAttribute> entries{builder.getNamedAttr("operands", typeList(builder, types.operands, counts)),
                                      builder.getNamedAttr("results", typeList(builder, types.results, counts)),
                                      builder.getNamedAttr("rule", types.rule)};
  if (types.quantized)
    entries.push_back(builder.getNamedAttr("quantized", builder.getUnitAttr()));
  return builder.getDictionaryAttr(entries);
}
