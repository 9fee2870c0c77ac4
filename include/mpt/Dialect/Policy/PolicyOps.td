// SPDX-License-Identifier: Apache-2.0
// Precision policies as text: the types of storage, arithmetic and accumulation, and the rules that decide them.
#ifndef MPT_DIALECT_POLICY_POLICYOPS_TD
#define MPT_DIALECT_POLICY_POLICYOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"

def Policy_Dialect : Dialect {
  let name = "policy";
  let cppNamespace = "::mpt::policy";
  let summary = "precision policies: types, rules, loss scaling and rounding";
  let description = [{
    A policy file holds one `policy.policy`. Rules on nodes beat rules on ops, which beat rules on layers, which beat rules on
    classes. Of several rules of a kind that match, one that decides `narrow` wins (an include beats an exclude), else the last.
    Slots that an op declares wide stay wide whatever a policy says.
  }];
}

class Policy_Op<string mnemonic, list<Trait> traits = []> : Op<Policy_Dialect, mnemonic, traits>;
/// Decides for some ops.
def Policy_DecidesOps : NativeOpTrait<"DecidesOps"> { let cppNamespace = "::mpt::policy"; }
class Policy_Rule<string mnemonic> : Policy_Op<mnemonic, [HasParent<"PolicyOp">, Policy_DecidesOps]>;
/// Holds for a policy as a whole.
class Policy_Setting<string mnemonic> : Policy_Op<mnemonic, [HasParent<"PolicyOp">]>;

def Policy_Decision : I32EnumAttr<"Decision", "what a rule decides", [
  I32EnumAttrCase<"narrow", 0>, I32EnumAttrCase<"wide", 1>, I32EnumAttrCase<"follow", 2>,
  I32EnumAttrCase<"storage", 3>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}
def Policy_Scaling : I32EnumAttr<"Scaling", "how the loss is scaled", [
  I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"fixed", 1>, I32EnumAttrCase<"dynamic", 2>,
  I32EnumAttrCase<"adaptive", 3>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}
def Policy_Predicate : I32EnumAttr<"Predicate", "what a layer, a GEMM of the forward pass with those of its gradients, is like", [
  I32EnumAttrCase<"first", 0>, I32EnumAttrCase<"last", 1>, I32EnumAttrCase<"unweighted", 2>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}
def Policy_Values : I32EnumAttr<"Values", "which roundings a rule is about", [
  I32EnumAttrCase<"all", 0>, I32EnumAttrCase<"operands", 1>, I32EnumAttrCase<"gradients", 2>,
  I32EnumAttrCase<"masters", 3>, I32EnumAttrCase<"slots", 4>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}
def Policy_TensorScaling : I32EnumAttr<"TensorScaling", "where the scale of one tensor comes from", [
  I32EnumAttrCase<"current", 0>, I32EnumAttrCase<"delayed", 1>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}

def Policy_PolicyOp : Policy_Op<"policy", [Symbol, SingleBlock, NoTerminator]> {
  let summary = "one policy";
  let description = [{
    `storage` is the type of narrow values in memory, `compute` the type of GEMMs' operands in the forward pass,
    `accumulate` the type of running sums, `master` the type of what optimizers update between steps, `slots` the type
    of optimizer slots that may be narrow: f16 of first moments, bf16 of sums of squares too, i8 and f8E4M3FN of both, as
    codes with a scale a block. `gradients` is the type in which parameters' gradients wait for
    the update, or, where it is an 8-bit type, that of GEMMs' operands that are gradients (those of activations are
    otherwise stored like activations). `parameter_gradients` is a further rounding of parameters' gradients. `slots` and
    `parameter_gradients` default to f32. `saved` is the type in which activations wait for the backward pass, storage's
    unless it is given. GEMMs' operands are converted from the storage type to 8-bit types.
    C1: storage is f16, bf16 or f32; compute is that or f8E4M3FN or f8E5M2, gradients too or f32. C2: accumulate is f32.
    C3: master is f32, or storage's type, which makes each parameter its own master. C4: slots and parameter_gradients
    are at most f32, and slots of 8 bits are i8 or f8E4M3FN. C5: saved is storage's type or an 8-bit one, and the latter goes without scales of tensors.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$storage, TypeAttr:$compute, TypeAttr:$accumulate,
    TypeAttr:$master, TypeAttr:$gradients, OptionalAttr<TypeAttr>:$slots, OptionalAttr<TypeAttr>:$parameter_gradients,
    OptionalAttr<TypeAttr>:$saved);
  let regions = (region SizedRegion<1>:$rules);
  let assemblyFormat = [{
    $sym_name `storage` `=` $storage `compute` `=` $compute `accumulate` `=` $accumulate `master` `=` $master
    `gradients` `=` $gradients (`slots` `=` $slots^)? (`parameter_gradients` `=` $parameter_gradients^)?
    (`saved` `=` $saved^)?
    attr-dict-with-keyword $rules
  }];
  let hasVerifier = 1;
}
def Policy_ClassOp : Policy_Rule<"class"> {
  let summary = "decision for all ops of a numeric class (contraction, reduction, range-expanding, neutral, movement)";
  let arguments = (ins StrAttr:$numeric_class, Policy_Decision:$decision);
  let assemblyFormat = "$numeric_class `->` $decision attr-dict";
  let hasVerifier = 1;
}
def Policy_OpRuleOp : Policy_Rule<"op"> {
  let summary = "decision for all ops of one name, or for one of their operands";
  let description = [{
    The name is that of a core op, or `onnx.` and an operator of a graph that is rewritten node by node. `with` restricts the
    rule to ops with these attributes. `operand` makes it a rule on the operand at that position alone; where the op's operands share one
    type, it decides for all of them.
  }];
  let arguments = (ins StrAttr:$op, OptionalAttr<DictionaryAttr>:$with, OptionalAttr<I64Attr>:$operand, Policy_Decision:$decision);
  let assemblyFormat = "$op (`with` $with^)? (`operand` $operand^)? `->` $decision attr-dict";
  let hasVerifier = 1;
}
def Policy_NodeOp : Policy_Rule<"node"> {
  let summary = "decision for all ops that come from ONNX nodes whose whole name matches an extended regular expression";
  let description = [{
    Gradient ops carry the name of their forward node, so that a node's backward follows its forward. `operand` as in
    `policy.op`.
  }];
  let arguments = (ins StrAttr:$regex, OptionalAttr<I64Attr>:$operand, Policy_Decision:$decision);
  let assemblyFormat = "$regex (`operand` $operand^)? `->` $decision attr-dict";
  let hasVerifier = 1;
}
def Policy_SavedOp : Policy_Rule<"saved"> {
  let summary = "whether the activations of nodes, by their whole names, wait for the backward pass in 8 bits";
  let description = [{
    `narrow`: as f8E4M3FN codes with an FP32 scale a row (see fusion-code-activations); `storage`: in their own type, which is
    what activations without a rule do. The last rule that matches decides.
    C1: the decision is narrow or storage. C2: the expression is one.
  }];
  let arguments = (ins StrAttr:$regex, Policy_Decision:$decision);
  let assemblyFormat = "$regex `->` $decision attr-dict";
  let hasVerifier = 1;
}
def Policy_WhereOp : Policy_Rule<"where"> {
  let summary = "decision for the GEMMs of layers with a property";
  let description = [{
    A layer is a GEMM of the forward pass and the GEMMs of its gradients. `first`: no GEMM comes before it.
    `last`: no GEMM of the forward pass comes after it. `unweighted`: neither operand is made of a parameter (attention
    scores). Decision `storage` computes in the storage type where the policy has narrower operands. Applies after class
    rules and before op rules.
  }];
  let arguments = (ins Policy_Predicate:$predicate, Policy_Decision:$decision);
  let assemblyFormat = "$predicate `->` $decision attr-dict";
}
def Policy_LossScalingOp : Policy_Setting<"loss_scaling"> {
  let summary = "none, a fixed scale, a dynamic one (see train.update_scale), or one a layer (see train.layer_scale)";
  let description = [{
    All modes but none skip steps whose gradients are not finite; `check` says what a skipped step leaves as it is: every
    state ("step"), or the states of parameters whose own gradients are not finite ("parameter"). Dynamic: the scale is kept above `floors[i]` from step
    `floor_steps[i]` on (arXiv 1905.12334), unless `patience` steps in a row were not finite (see train.floor_scale).

    Adaptive (arXiv 1910.12385): each GEMM that makes a gradient picks a further scale from the spread of its result;
    `spread` is "product" (of one term) or "sum" (of all terms), `underflow` the share of results that may fall below
    `smallest`; `largest` bounds magnitudes. Both are the type's own where they are 0. `first` says how the first rounding is
    scaled: by the "log_normal" fit, `headroom` below the largest, or "none". `layer_max` bounds one factor and `total_max`
    their product, counted from the first rounding (`total_from` "rounding") or from the loss, the first factor included
    ("loss"). Factors are chosen anew every `update_interval` steps and after a skipped one; what bounds them holds in each.
    C1: 0 < min <= init <= max. C2: growth > 1, 0 < backoff < 1, interval, hysteresis, patience and update_interval of at
    least 1. C3: floors and their steps are of one length, steps ascend, floors are positive and at most max. C4: spread is
    "product" or "sum", first "log_normal" or "none", total_from "rounding" or "loss", 0 < underflow < 1, bounds and
    headroom are positive. C5: check is "step", or "parameter" in another mode than none.
  }];
  let arguments = (ins Policy_Scaling:$mode, DefaultValuedAttr<F64Attr, "65536.0">:$init,
    DefaultValuedAttr<F64Attr, "2.0">:$growth, DefaultValuedAttr<F64Attr, "0.5">:$backoff,
    DefaultValuedAttr<I64Attr, "2000">:$interval, DefaultValuedAttr<I64Attr, "1">:$hysteresis,
    DefaultValuedAttr<F64Attr, "0x1p-14">:$min, DefaultValuedAttr<F64Attr, "16777216.0">:$max,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$floor_steps, DefaultValuedAttr<DenseF64ArrayAttr, "{}">:$floors,
    DefaultValuedAttr<I64Attr, "16">:$patience,
    DefaultValuedAttr<StrAttr, "\"sum\"">:$spread, DefaultValuedAttr<F64Attr, "1.0e-3">:$underflow,
    DefaultValuedAttr<F64Attr, "16.0">:$layer_max, DefaultValuedAttr<F64Attr, "1024.0">:$total_max,
    DefaultValuedAttr<StrAttr, "\"rounding\"">:$total_from, DefaultValuedAttr<StrAttr, "\"log_normal\"">:$first,
    DefaultValuedAttr<F64Attr, "256.0">:$headroom, DefaultValuedAttr<F64Attr, "0.0">:$smallest,
    DefaultValuedAttr<F64Attr, "0.0">:$largest, DefaultValuedAttr<I64Attr, "1">:$update_interval,
    DefaultValuedAttr<StrAttr, "\"step\"">:$check);
  let assemblyFormat = "$mode attr-dict";
  let hasVerifier = 1;
}
def Policy_TensorScalingOp : Policy_Setting<"tensor_scaling"> {
  let summary = "GEMMs' 8-bit operands are multiplied by a scale of their own before rounding (see train.tensor_scale)";
  let description = [{
    `current`: from the tensor's own largest magnitude. `delayed`: from the largest one of the last `history` steps (with
    `most_recent`: the last step's), which is state. The largest magnitude lands 2^margin below the format's largest value;
    `power_of_two` rounds scales down to powers of two. C1: history of at least 1, margin not negative.
  }];
  let arguments = (ins Policy_TensorScaling:$mode, DefaultValuedAttr<I64Attr, "1024">:$history,
    DefaultValuedAttr<I64Attr, "0">:$margin, DefaultValuedAttr<BoolAttr, "false">:$most_recent,
    DefaultValuedAttr<BoolAttr, "false">:$power_of_two);
  let assemblyFormat = "$mode attr-dict";
  let hasVerifier = 1;
}
def Policy_RoundingOp : Policy_Setting<"rounding"> {
  let summary = "rounding of casts: nearest_even, stochastic or compensated, and beyond the range inf or saturate";
  let description = [{
    Of `operands` (forward operands of GEMMs that are converted to compute type), `gradients` (gradients converted to
    the gradients' types), `masters` (parameters that optimizers write narrow), or `all` of these. Later rules win. Casts
    between f32 and the storage type are to nearest, with infinities. Of `slots`: optimizer slots that are stored narrow,
    which are rounded stochastically and saturate where no rule says otherwise. `compensated`, of `masters` that are the
    storage type: to nearest, and what is left out is a state `<name>.remainder`, which the next update adds.
  }];
  let arguments = (ins StrAttr:$mode, DefaultValuedAttr<Policy_Values, "::mpt::policy::Values::all">:$values,
    DefaultValuedAttr<StrAttr, "\"inf\"">:$overflow);
  let assemblyFormat = "$mode (`of` $values^)? (`overflow` $overflow^)? attr-dict";
  let hasVerifier = 1;
}

#endif
