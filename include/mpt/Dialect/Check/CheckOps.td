// SPDX-License-Identifier: Apache-2.0
// Assertions for tests; executed by the reference interpreter.
#ifndef MPT_DIALECT_CHECK_CHECKOPS_TD
#define MPT_DIALECT_CHECK_CHECKOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Check_Dialect : Dialect {
  let name = "check";
  let cppNamespace = "::mpt::check";
  let summary = "test-only assertions; tolerances are always explicit";
  let description = [{
    On arguments of a case of the conformance suite, `check.low` and `check.high` bound the values that it draws. A result with
    `check.observed` is a value on the way that a test looks at, so it may carry a loss scale.
  }];
  let discardableAttrs = (ins "::mlir::FloatAttr":$low, "::mlir::FloatAttr":$high, "::mlir::UnitAttr":$observed);
}

class Check_Op<string mnemonic, list<Trait> traits = []> : Op<Check_Dialect, mnemonic, traits>;
def Check_Number : StaticShapeTensorOf<[AnyFloat, AnyInteger]>;

def Check_EqualOp : Check_Op<"equal", [SameTypeOperands]> {
  let summary = "bit-equal, elementwise";
  let arguments = (ins Check_Number:$actual, Check_Number:$expected);
  let assemblyFormat = "$actual `,` $expected attr-dict `:` type($actual)";
}
def Check_CloseOp : Check_Op<"close", [SameTypeOperands]> {
  let summary = "|actual - expected| <= atol + rtol |expected|, elementwise; NaN only equals NaN";
  let arguments = (ins Check_Number:$actual, Check_Number:$expected, F64Attr:$atol, F64Attr:$rtol);
  let assemblyFormat = "$actual `,` $expected attr-dict `:` type($actual)";
}
def Check_ULPCloseOp : Check_Op<"ulp_close", [SameTypeOperands]> {
  let summary = "at most `ulps` representable values apart in the operands' type, elementwise";
  let arguments = (ins Check_Number:$actual, Check_Number:$expected, I64Attr:$ulps);
  let assemblyFormat = "$actual `,` $expected attr-dict `:` type($actual)";
}

#endif
