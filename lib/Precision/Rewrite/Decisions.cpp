// SPDX-License-Identifier: Apache-2.0
// Decisions as attributes.
#include "mpt/Precision/Decisions.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

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

mpt::OpTypes mpt::decisionOf(Operation *op) {
  OpTypes types;
  auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(op);
  if (!decision)
    return types;
  auto read = [&](StringRef key, SmallVectorImpl<Type> &to) {
    if (auto list = decision.getAs<ArrayAttr>(key))
      for (Attribute entry : list)
        to.push_back(isa<TypeAttr>(entry) ? cast<TypeAttr>(entry).getValue() : Type());
  };
  read("operands", types.operands);
  read("results", types.results);
  types.rule = decision.getAs<StringAttr>("rule");
  types.quantized = decision.contains("quantized");
  return types;
}
