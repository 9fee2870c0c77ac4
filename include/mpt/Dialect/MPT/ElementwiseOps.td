// SPDX-License-Identifier: Apache-2.0
// Elementwise family: one result element from the operand elements at the same position.
#ifndef MPT_DIALECT_MPT_ELEMENTWISEOPS_TD
#define MPT_DIALECT_MPT_ELEMENTWISEOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

class MPT_UnaryOp<string mnemonic, string numericClass, string text, list<Trait> traits = []>
    : MPT_Op<mnemonic, numericClass, [Elementwise, SameOperandsAndResultType] # traits, "0", "0", "true"> {
  let summary = text;
  let arguments = (ins MPT_Number:$x);
  let results = (outs MPT_Number:$y);
  let assemblyFormat = "$x attr-dict `:` type($y)";
}
class MPT_BinaryOp<string mnemonic, string numericClass, string text, list<Trait> traits = []>
    : MPT_Op<mnemonic, numericClass, [Elementwise, SameOperandsAndResultType] # traits, "0", "0", "true"> {
  let summary = text;
  let arguments = (ins MPT_Number:$lhs, MPT_Number:$rhs);
  let results = (outs MPT_Number:$y);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($y)";
}
class MPT_TestOp<string mnemonic, string text>
    : MPT_InferredOp<mnemonic, "Movement", [Elementwise]> {
  let summary = text;
  let arguments = (ins MPT_Number:$x);
  let results = (outs MPT_Bool:$y);
  let assemblyFormat = "$x attr-dict `:` type($x)";
}

def MPT_AbsOp : MPT_UnaryOp<"abs", "Movement", "|x|">;
def MPT_NegOp : MPT_UnaryOp<"neg", "Movement", "-x">;
def MPT_SignOp : MPT_UnaryOp<"sign", "Movement", "-1, 0 or 1; NaN stays NaN">;
def MPT_FloorOp : MPT_UnaryOp<"floor", "Movement", "largest integer not above x">;
def MPT_CeilOp : MPT_UnaryOp<"ceil", "Movement", "smallest integer not below x">;
def MPT_RoundOp : MPT_UnaryOp<"round", "Movement", "nearest integer, ties to even">;
def MPT_ReluOp : MPT_UnaryOp<"relu", "Movement", "max(x, 0); NaN stays NaN">;
def MPT_ExpOp : MPT_UnaryOp<"exp", "RangeExpanding", "e to the x">;
def MPT_LogOp : MPT_UnaryOp<"log", "Neutral", "natural logarithm">;
def MPT_SqrtOp : MPT_UnaryOp<"sqrt", "Neutral", "square root">;
def MPT_RsqrtOp : MPT_UnaryOp<"rsqrt", "RangeExpanding", "1 / sqrt(x)">;
def MPT_ReciprocalOp : MPT_UnaryOp<"reciprocal", "Neutral", "1 / x">;
def MPT_SinOp : MPT_UnaryOp<"sin", "Neutral", "sine, x in radians">;
def MPT_CosOp : MPT_UnaryOp<"cos", "Neutral", "cosine, x in radians">;
def MPT_TanhOp : MPT_UnaryOp<"tanh", "Neutral", "hyperbolic tangent">;
def MPT_SigmoidOp : MPT_UnaryOp<"sigmoid", "Neutral", "1 / (1 + e^-x)">;
def MPT_ErfOp : MPT_UnaryOp<"erf", "Neutral", "error function">;
def MPT_SoftplusOp : MPT_UnaryOp<"softplus", "RangeExpanding", "log(1 + e^x), without overflow for large x">;
def MPT_NotOp : MPT_UnaryOp<"not", "Movement", "logical (i1) or bitwise complement">;
def MPT_IsNaNOp : MPT_TestOp<"is_nan", "x is NaN">;
def MPT_IsInfOp : MPT_TestOp<"is_inf", "x is plus or minus infinity">;
def MPT_IsFiniteOp : MPT_TestOp<"is_finite", "x is neither infinite nor NaN">;

def MPT_GeluOp : MPT_UnaryOp<"gelu", "Neutral", "Gaussian error linear unit (arXiv 1606.08415)", [Decomposable]> {
  let arguments = (ins MPT_Float:$x, DefaultValuedAttr<MPT_GeluFormAttr, "::mpt::GeluForm::erf">:$form);
  let results = (outs MPT_Float:$y);
  let extraClassDeclaration = precisionMethods # [{
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>> decompose(::mlir::OpBuilder &builder);
  }];
}
def MPT_GeluBackwardOp : MPT_BinaryOp<"gelu_backward", "Neutral", "lhs (dy) times GELU'(rhs), rhs the forward input", [Decomposable]> {
  let arguments = (ins MPT_Float:$lhs, MPT_Float:$rhs, DefaultValuedAttr<MPT_GeluFormAttr, "::mpt::GeluForm::erf">:$form);
  let results = (outs MPT_Float:$y);
  let extraClassDeclaration = precisionMethods # [{
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>> decompose(::mlir::OpBuilder &builder);
  }];
}
def MPT_SwishOp : MPT_UnaryOp<"swish", "Neutral", "x sigmoid(alpha x)", [Decomposable]> {
  let arguments = (ins MPT_Float:$x, DefaultValuedAttr<F64Attr, "1.0">:$alpha);
  let results = (outs MPT_Float:$y);
  let extraClassDeclaration = precisionMethods # [{
    ::llvm::FailureOr<::llvm::SmallVector<::mlir::Value>> decompose(::mlir::OpBuilder &builder);
  }];
}
def MPT_EluOp : MPT_UnaryOp<"elu", "Neutral", "x for x > 0, else alpha (e^x - 1)"> {
  let arguments = (ins MPT_Float:$x, DefaultValuedAttr<F64Attr, "1.0">:$alpha);
  let results = (outs MPT_Float:$y);
}
def MPT_LeakyReluOp : MPT_UnaryOp<"leaky_relu", "Neutral", "x for x >= 0, else alpha x"> {
  let arguments = (ins MPT_Float:$x, DefaultValuedAttr<F64Attr, "0.01">:$alpha);
  let results = (outs MPT_Float:$y);
}
def MPT_HardSigmoidOp : MPT_UnaryOp<"hard_sigmoid", "Neutral", "max(0, min(1, alpha x + beta))"> {
  let arguments = (ins MPT_Float:$x, DefaultValuedAttr<F64Attr, "0.2">:$alpha, DefaultValuedAttr<F64Attr, "0.5">:$beta);
  let results = (outs MPT_Float:$y);
}
def MPT_ClampOp : MPT_UnaryOp<"clamp", "Movement", "min(max(x, low), high); NaN stays NaN"> {
  let arguments = (ins MPT_Number:$x, F64Attr:$low, F64Attr:$high);
}

def MPT_AddOp : MPT_BinaryOp<"add", "Neutral", "lhs + rhs", [Commutative]>;
def MPT_SubOp : MPT_BinaryOp<"sub", "Neutral", "lhs - rhs">;
def MPT_MulOp : MPT_BinaryOp<"mul", "Neutral", "lhs * rhs", [Commutative]>;
def MPT_DivOp : MPT_BinaryOp<"div", "Neutral", "lhs / rhs; integers truncate toward zero, wrap, and by 0 are 0">;
def MPT_ModOp : MPT_BinaryOp<"mod", "Neutral", "remainder of truncating division (C's fmod and %), sign of lhs; of integers by 0 it is 0">;
def MPT_PowOp : MPT_BinaryOp<"pow", "RangeExpanding", "lhs to the power rhs">;
def MPT_MaxOp : MPT_BinaryOp<"max", "Movement", "larger value; NaN if either is NaN", [Commutative]>;
def MPT_MinOp : MPT_BinaryOp<"min", "Movement", "smaller value; NaN if either is NaN", [Commutative]>;
def MPT_AndOp : MPT_BinaryOp<"and", "Movement", "logical (i1) or bitwise and", [Commutative]>;
def MPT_OrOp : MPT_BinaryOp<"or", "Movement", "logical (i1) or bitwise or", [Commutative]>;
def MPT_XorOp : MPT_BinaryOp<"xor", "Movement", "logical (i1) or bitwise exclusive or", [Commutative]>;
def MPT_ReluBackwardOp : MPT_BinaryOp<"relu_backward", "Movement", "lhs (dy) where rhs (the forward result) > 0, else 0">;
def MPT_TanhBackwardOp : MPT_BinaryOp<"tanh_backward", "Neutral", "lhs (dy) times 1 - rhs^2, rhs the forward result">;
def MPT_SigmoidBackwardOp
    : MPT_BinaryOp<"sigmoid_backward", "Neutral", "lhs (dy) times rhs (1 - rhs), rhs the forward result">;

def MPT_CompareOp : MPT_InferredOp<"compare", "Movement", [Elementwise, SameTypeOperands], "0", "0", "true"> {
  let summary = "elementwise comparison";
  let arguments = (ins MPT_Number:$lhs, MPT_Number:$rhs, MPT_PredicateAttr:$predicate);
  let results = (outs MPT_Bool:$y);
  let assemblyFormat = "$predicate $lhs `,` $rhs attr-dict `:` type($lhs)";
}
def MPT_SelectOp : MPT_Op<"select", "Movement",
    [Elementwise, AllTypesMatch<["on_true", "on_false", "y"]>, AllShapesMatch<["condition", "y"]>], "0", "0", "true"> {
  let summary = "on_true where condition holds, else on_false";
  let arguments = (ins MPT_Bool:$condition, MPT_Number:$on_true, MPT_Number:$on_false);
  let results = (outs MPT_Number:$y);
  let assemblyFormat = "$condition `,` $on_true `,` $on_false attr-dict `:` type($condition) `,` type($y)";
}

#endif
