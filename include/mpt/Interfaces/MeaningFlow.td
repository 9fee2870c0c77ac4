// SPDX-License-Identifier: Apache-2.0
// The kind of arithmetic that an op does: how positions, counts, tables and raw inputs pass through it.
#ifndef MPT_INTERFACES_MEANINGFLOW_TD
#define MPT_INTERFACES_MEANINGFLOW_TD

include "mlir/IR/OpBase.td"

def MeaningFlow : OpInterface<"MeaningFlow"> {
  let cppNamespace = "::mpt";
  let description = [{
    The analysis of meanings (`mpt/Precision/Meaning.h`) follows what a value is, a position, a count, a table, a raw
    input, through ops by this alone. Of an op without the interface nothing is known. lib/Precision attaches it to core
    ops; an ONNX operator states it in the entry of its import rule.
  }];
  let methods = [
    InterfaceMethod<"What the op does with its operands.", "::mpt::Arithmetic", "getArithmetic">
  ];
}

#endif
