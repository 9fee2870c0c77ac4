// SPDX-License-Identifier: Apache-2.0
// Numeric classes and arithmetic of ONNX operators, as the entries of the rule table state them.
#include "mpt/Dialect/ONNX/OperatorClasses.h"

#include "Binder.h"
#include "mpt/Import/Import.h"

using namespace mlir;
using namespace mpt;

static onnx::OperandUse useOf(StringRef domain, StringRef opType, unsigned operand) {
  const OperatorEntry *entry = RuleTable::get().entry(domain, opType);
  if (!entry || operand >= 64)
    return onnx::OperandUse::Data;
  const NodeClass &what = *entry->numericClass;
  return (what.weights >> operand) & 1 ? onnx::OperandUse::Weight
         : what.mixes                  ? onnx::OperandUse::Either
                                       : onnx::OperandUse::Data;
}

bool mpt::mayTrain(StringRef domain, StringRef opType, unsigned operand) {
  return ::useOf(domain, opType, operand) != onnx::OperandUse::Data;
}

bool mpt::isWeightOperand(StringRef domain, StringRef opType, unsigned operand) {
  return ::useOf(domain, opType, operand) == onnx::OperandUse::Weight;
}

static Arithmetic arithmeticOf(StringRef domain, StringRef opType) {
  const OperatorEntry *entry = RuleTable::get().entry(domain, opType);
  return entry ? entry->numericClass->arithmetic : Arithmetic::Unknown;
}

bool mpt::isFunction(StringRef domain, StringRef opType, unsigned operand) {
  return operand == 0 && isFunction(::arithmeticOf(domain, opType));
}

bool mpt::contracts(StringRef domain, StringRef opType) {
  return ::arithmeticOf(domain, opType) == Arithmetic::Contracts;
}

bool mpt::moves(StringRef domain, StringRef opType) {
  return llvm::is_contained({Arithmetic::Moves, Arithmetic::Converts}, ::arithmeticOf(domain, opType));
}

namespace {
class EntryClasses final : public onnx::OperatorClasses {
public:
  using OperatorClasses::OperatorClasses;

  std::optional<NumericClass> classOf(onnx::NodeOp node) const override {
    bool isRuntimes = node.getDomain().empty() && isRuntimeOperator(node.getOpType(), node.getVersion());
    const OperatorEntry *entry =
        RuleTable::get().entry(isRuntimes ? "com.microsoft" : node.getDomain(), node.getOpType());
    return entry ? std::optional(entry->numericClass->of(node)) : std::nullopt;
  }
  Arithmetic arithmeticOf(onnx::NodeOp node) const override {
    return ::arithmeticOf(node.getDomain(), node.getOpType());
  }
  onnx::OperandUse useOf(onnx::NodeOp node, unsigned operand) const override {
    return ::useOf(node.getDomain(), node.getOpType(), operand);
  }
};
} // namespace

void mpt::registerOperatorClasses(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, onnx::ONNXDialect *dialect) { dialect->addInterface<EntryClasses>(); });
}
