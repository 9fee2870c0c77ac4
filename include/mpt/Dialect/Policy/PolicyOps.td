// Precision policies as text: what is stored, computed and accumulated in which type, and the rules that decide it.
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
    A policy file holds one `policy.policy`. Rules apply in the order class, op, node; the last one that matches decides.
    Slots that an op declares wide stay wide whatever a policy says.
  }];
}

class Policy_Op<string mnemonic, list<Trait> traits = []> : Op<Policy_Dialect, mnemonic, traits>;
class Policy_Rule<string mnemonic, list<Trait> traits = []> : Policy_Op<mnemonic, [HasParent<"PolicyOp">] # traits>;

def Policy_Decision : I32EnumAttr<"Decision", "what a rule decides", [
  I32EnumAttrCase<"narrow", 0>, I32EnumAttrCase<"wide", 1>, I32EnumAttrCase<"follow", 2>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}
def Policy_Scaling : I32EnumAttr<"Scaling", "how the loss is scaled", [
  I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"fixed", 1>, I32EnumAttrCase<"dynamic", 2>]> {
  let cppNamespace = "::mpt::policy";
  let genSpecializedAttr = 1;
}

def Policy_PolicyOp : Policy_Op<"policy", [Symbol, SingleBlock, NoTerminator]> {
  let summary = "one policy";
  let description = [{
    `storage` is the type of narrow values in memory, `compute` the type that contractions multiply in, `accumulate` the
    type of running sums, `master` the type that optimizers update, `gradients` the type in which
    parameters' gradients wait for the update (those of activations are stored like activations).
    C1: storage and compute are one type, gradients that type or f32. C2: accumulate and master are f32 or wider.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$storage, TypeAttr:$compute, TypeAttr:$accumulate,
    TypeAttr:$master, TypeAttr:$gradients);
  let regions = (region SizedRegion<1>:$rules);
  let assemblyFormat = [{
    $sym_name `storage` `=` $storage `compute` `=` $compute `accumulate` `=` $accumulate `master` `=` $master
    `gradients` `=` $gradients attr-dict-with-keyword $rules
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
  let summary = "decision for all ops of one name";
  let arguments = (ins StrAttr:$op, Policy_Decision:$decision);
  let assemblyFormat = "$op `->` $decision attr-dict";
}
def Policy_NodeOp : Policy_Rule<"node"> {
  let summary = "decision for all ops that come from ONNX nodes whose whole name matches an extended regular expression";
  let description = [{Gradient ops carry the name of their forward node, so that a node's backward follows its forward.}];
  let arguments = (ins StrAttr:$regex, Policy_Decision:$decision);
  let assemblyFormat = "$regex `->` $decision attr-dict";
  let hasVerifier = 1;
}
def Policy_LossScalingOp : Policy_Rule<"loss_scaling"> {
  let summary = "none, a fixed scale, or a dynamic one (see train.update_scale)";
  let description = [{
    Fixed and dynamic scaling skip steps whose gradients are not finite. C1: 0 < min <= init <= max. C2: growth > 1,
    0 < backoff < 1, interval and hysteresis of at least 1.
  }];
  let arguments = (ins Policy_Scaling:$mode, DefaultValuedAttr<F64Attr, "65536.0">:$init,
    DefaultValuedAttr<F64Attr, "2.0">:$growth, DefaultValuedAttr<F64Attr, "0.5">:$backoff,
    DefaultValuedAttr<I64Attr, "2000">:$interval, DefaultValuedAttr<I64Attr, "1">:$hysteresis,
    DefaultValuedAttr<F64Attr, "1.0">:$min, DefaultValuedAttr<F64Attr, "16777216.0">:$max);
  let assemblyFormat = "$mode attr-dict";
  let hasVerifier = 1;
}
def Policy_RoundingOp : Policy_Rule<"rounding"> {
  let summary = "rounding of inserted casts: nearest_even (stochastic rounding has no built-in policy yet)";
  let arguments = (ins StrAttr:$mode);
  let assemblyFormat = "$mode attr-dict";
  let hasVerifier = 1;
}

#endif
