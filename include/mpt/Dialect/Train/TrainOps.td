// SPDX-License-Identifier: Apache-2.0
// Training form: named state, the gradient boundary, loss-scale arithmetic.
#ifndef MPT_DIALECT_TRAIN_TRAINOPS_TD
#define MPT_DIALECT_TRAIN_TRAINOPS_TD

include "mpt/Dialect/Train/TrainBase.td"

def Train_StateOp : Train_Op<"state", [Symbol]> {
  let summary = "a named tensor that lives from step to step";
  let description = [{
    `sym_name` is the ONNX name for parameters, with an apostrophe before it where a function has that name
    (`TrainDialect::symbolOf`). `of` names the parameter that a master, slot or accumulator belongs to.
    `value` is the initial content: an elements attribute of the state's shape (a splat for fills); a master without one
    starts as its parameter, and a parameter with `from` starts as the value of that other state, cast.
    `frozen` parameters are read but never written by an optimizer.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<Train_Number>:$type, Train_RoleAttr:$role,
    OptionalAttr<StrAttr>:$of, OptionalAttr<ElementsAttr>:$value, UnitAttr:$frozen,
    OptionalAttr<StrAttr>:$from);
  let extraClassDeclaration = [{
    /// The name that users know the state by.
    ::llvm::StringRef getTensorName() { return TrainDialect::tensorName(getSymName()); }
  }];
  let assemblyFormat = "$role $sym_name `:` $type (`of` $of^)? (`=` $value^)? (`frozen` $frozen^)? attr-dict";
  let hasVerifier = 1;
}
def Train_ReadOp : Train_Op<"read", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "value of a state tensor at the start of the call";
  let arguments = (ins FlatSymbolRefAttr:$state);
  let results = (outs Train_Number:$value);
  let assemblyFormat = "$state attr-dict `:` type($value)";
}
def Train_WriteOp : Train_Op<"write", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "new value of a state tensor, kept only where `condition` (scalar i1) holds";
  let arguments = (ins FlatSymbolRefAttr:$state, Train_Number:$value, Optional<Train_I1>:$condition);
  let assemblyFormat = "$state `,` $value (`if` $condition^ `:` type($condition))? attr-dict `:` type($value)";
}
def Train_GradientOp : Train_Op<"gradient", [Pure, AllTypesMatch<["gradient", "result"]>]> {
  let summary = "marks the gradient of a parameter: what optimizers consume and the `gradients` function returns";
  let description = [{Differentiation emits one a trained parameter; precision passes scale, unscale and widen around it.}];
  let arguments = (ins FlatSymbolRefAttr:$parameter, Train_Float:$gradient);
  let results = (outs Train_Float:$result);
  let assemblyFormat = "$parameter `,` $gradient attr-dict `:` type($gradient)";
}
def Train_AllFiniteOp : Train_Op<"all_finite", [Pure]> {
  let summary = "scalar i1: no element of any operand is infinite or NaN (true without operands)";
  let arguments = (ins Variadic<Train_Float>:$values);
  let results = (outs Train_I1:$finite);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Train_GlobalNormOp : Train_Op<"global_norm", [Pure]> {
  let summary = "scalar FP32: L2 norm over the elements of all operands, accumulated in FP32 or wider";
  let arguments = (ins Variadic<Train_Float>:$values);
  let results = (outs Train_Float:$norm);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
def Train_ScaleLossOp : Train_Op<"scale_loss", [Pure, AllTypesMatch<["seed", "result"]>]> {
  let summary = "gradient seed times the loss scale: from here on gradients carry `scale`";
  let arguments = (ins Train_Float:$seed, Train_Float:$scale);
  let results = (outs Train_Float:$result);
  let assemblyFormat = "$seed `,` $scale attr-dict `:` type($seed) `,` type($scale)";
}
def Train_UnscaleOp : Train_Op<"unscale", [Pure]> {
  let summary = "FP32 gradient without its scale: gradient (widened first) times 1 / scale";
  let arguments = (ins Train_Float:$gradient, Train_Float:$scale);
  let results = (outs Train_Float:$result);
  let assemblyFormat = "$gradient `,` $scale attr-dict `:` functional-type(operands, results)";
}
def Train_UpdateScaleOp : Train_Op<"update_scale", [Pure]> {
  let summary = "next loss scale and counters after a step that was finite or not";
  let description = [{
    Scalars: scale FP32, good_steps and hysteresis_left i32, finite i1. Not finite: good_steps' = 0, hysteresis_left' =
    hysteresis_left - 1 and, once that is not positive, scale' = max(scale backoff, min). Finite: hysteresis_left' =
    hysteresis; good_steps' = good_steps + 1; at `interval` it returns to 0 and scale' = min(scale growth, max) if finite.
    hysteresis 1 is the scheme of arXiv 1710.03740 as commonly implemented.
  }];
  let arguments = (ins Train_Float:$scale, Train_Int:$good_steps, Train_Int:$hysteresis_left, Train_I1:$finite,
    F64Attr:$growth, F64Attr:$backoff, I64Attr:$interval, I64Attr:$hysteresis, F64Attr:$min, F64Attr:$max);
  let results = (outs Train_Float:$new_scale, Train_Int:$new_good_steps, Train_Int:$new_hysteresis_left);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

#endif
