// SPDX-License-Identifier: Apache-2.0
// The meaning of an op when a trained model is evaluated. Bodies are attached by lib/Autodiff.
#ifndef MPT_INTERFACES_EVALUATIONFORM_TD
#define MPT_INTERFACES_EVALUATIONFORM_TD

include "mlir/IR/OpBase.td"

def EvaluationForm : OpInterface<"EvaluationForm"> {
  let cppNamespace = "::mpt";
  let description = [{
    Implemented by ops that mean something else outside training: dropout passes its input on, batch normalization uses the
    running statistics. Ops without it mean the same in both.
  }];
  let methods = [
    InterfaceMethod<"Builds the op's meaning in evaluation; one value a result, the results themselves where it is the same.",
      "::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>>", "evaluationForm", (ins "::mlir::OpBuilder &":$builder)>
  ];
}

#endif
