// SPDX-License-Identifier: Apache-2.0
// Which operand elements a result element of an op follows from. Attached by lib/Evaluation.
#ifndef MPT_INTERFACES_EVALUATIONPATTERN_TD
#define MPT_INTERFACES_EVALUATIONPATTERN_TD

include "mlir/IR/OpBase.td"

def EvaluationPattern : OpInterface<"EvaluationPattern"> {
  let cppNamespace = "::mpt";
  let description = [{
    What constant folding has to know beside an op's meaning: when one element stands for all, and when evaluation takes more
    than linear time. An op without this interface has the pattern `Elements`.
  }];
  let methods = [
    InterfaceMethod<"Pattern of the op's accesses.", "::mpt::AccessPattern", "getAccessPattern">
  ];
}

#endif
