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

mpt::PrecisionAttr mpt::decisionAttr(Builder &builder, const OpTypes &types, DecisionCounts &counts) {
  return PrecisionAttr::get(builder.getContext(), typeList(builder, types.operands, counts),
                            typeList(builder, types.results, counts), types.rule, types.quantized);
}

mpt::OpTypes mpt::decisionOf(Operation *op) {
  OpTypes types;
  auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(op);
  if (!decision)
    return types;
  for (unsigned i = 0; i < decision.getOperands().size(); ++i)
    types.operands.push_back(decision.operandType(i));
  for (unsigned i = 0; i < decision.getResults().size(); ++i)
    types.results.push_back(decision.resultType(i));
  types.rule = decision.getRule();
  types.quantized = decision.getQuantized();
  return types;
}
