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
      (ins "::mpt::ElementEmitter &":$emitter, "unsigned":$index, "::llvm::ArrayRef<::mpt::IndexExpr>":$at)>
  ];
}

#endif
