// SPDX-License-Identifier: Apache-2.0
// Numeric classes of ONNX operators, as the entries of the rule table state them.
#include "mpt/Dialect/ONNX/OperatorClasses.h"

#include "Binder.h"
#include "mpt/Import/Import.h"

using namespace mlir;
using namespace mpt;

namespace {
class EntryClasses final : public onnx::OperatorClasses {
public:
  using OperatorClasses::OperatorClasses;

  std::optional<NumericClass> classOf(onnx::NodeOp node) const override {
    const OperatorEntry *entry = RuleTable::get().entry(node.getDomain(), node.getOpType());
    return entry ? std::optional(entry->numericClass->of(node)) : std::nullopt;
  }
};
} // namespace

void mpt::registerOperatorClasses(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, onnx::ONNXDialect *dialect) { dialect->addInterface<EntryClasses>(); });
}
