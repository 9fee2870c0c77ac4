// SPDX-License-Identifier: Apache-2.0
// Execution of one op by the reference interpreter. Bodies are attached by lib/Evaluation.
#ifndef MPT_INTERFACES_INTERPRETABLE_TD
#define MPT_INTERFACES_INTERPRETABLE_TD

include "mlir/IR/OpBase.td"

def Interpretable : OpInterface<"Interpretable"> {
  let cppNamespace = "::mpt";
  let description = [{
    The op's meaning, element by element: reads operand tensors from `frame`, writes result tensors, rounding exactly as the
    result types say.
  }];
  let methods = [
    InterfaceMethod<"Evaluates the op.", "::llvm::LogicalResult", "interpret", (ins "::mpt::InterpreterFrame &":$frame)>
  ];
}

#endif
