// SPDX-License-Identifier: Apache-2.0
// How an op gets its meaning: one function `interpret(Op, InterpreterFrame &)`, attached as its Interpretable model.
#ifndef MPT_EVALUATION_RULE_H
#define MPT_EVALUATION_RULE_H

#include "mpt/Evaluation/Frame.h"
#include "mpt/Interfaces/EvaluationPattern.h"

namespace mpt {

/// Model of `Op` that calls `rule`.
template <typename Op, llvm::LogicalResult (*rule)(Op, InterpreterFrame &)>
struct RuleModel : Interpretable::ExternalModel<RuleModel<Op, rule>, Op> {
  llvm::LogicalResult interpret(mlir::Operation *op, InterpreterFrame &frame) const {
    return rule(llvm::cast<Op>(op), frame);
  }
};

template <typename Op, AccessPattern pattern>
struct PatternModel : EvaluationPattern::ExternalModel<PatternModel<Op, pattern>, Op> {
  AccessPattern getAccessPattern(mlir::Operation *) const { return pattern; }
};

template <typename Op, llvm::LogicalResult (*rule)(Op, InterpreterFrame &)>
void attachRule(mlir::MLIRContext *context) {
  Op::template attachInterface<RuleModel<Op, rule>>(*context);
}

/// The same for an op of another pattern than element by element in linear time.
template <typename Op, llvm::LogicalResult (*rule)(Op, InterpreterFrame &), AccessPattern pattern>
void attachRule(mlir::MLIRContext *context) {
  Op::template attachInterface<RuleModel<Op, rule>, PatternModel<Op, pattern>>(*context);
}

} // namespace mpt

#endif // MPT_EVALUATION_RULE_H
