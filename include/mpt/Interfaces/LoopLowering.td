// SPDX-License-Identifier: Apache-2.0
// Emission of one element of an op's result inside a generated loop. Bodies are attached by lib/Lowering.
#ifndef MPT_INTERFACES_LOOPLOWERING_TD
#define MPT_INTERFACES_LOOPLOWERING_TD

include "mlir/IR/OpBase.td"

def LoopLowering : OpInterface<"LoopLowering"> {
  let cppNamespace = "::mpt";
  let description = [{
    The op's result as a function of its index. `at` has one index expression a dimension of the result; the op asks the
    emitter for operand elements at the indices it needs and builds arith and vector ops. Floats narrower than FP32 arrive
    and leave as FP32 values; the emitter rounds what is returned to the result's type. Returns null after reporting an
    error.
  }];
  let methods = [
    InterfaceMethod<"Builds element `at` of result `index`.", "::mlir::Value", "emitElement",
      (ins "::mpt::ElementEmitter &":$emitter, "unsigned":$index, "::llvm::ArrayRef<::mpt::IndexExpr>":$at)>,
    InterfaceMethod<"Operand `index` is read at the result's own index alone.", "bool", "readsOwnIndex",
      (ins "unsigned":$index), [{}], [{ return $_op->template hasTrait<::mlir::OpTrait::Elementwise>(); }]>,
    InterfaceMethod<"A few instructions an element: better rematerialized for each reader than kept in memory.", "bool",
      "isCheap", (ins), [{}], [{ return $_op.getNumericClass() == ::mpt::NumericClass::Movement; }]>,
    InterfaceMethod<"Has a kernel of its own, which nothing joins.", "bool", "standsAlone", (ins), [{}], [{ return false; }]>
  ];
}

#endif
