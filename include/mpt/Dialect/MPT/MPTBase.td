// SPDX-License-Identifier: Apache-2.0
// Dialect definition, types, attributes and op classes of the core graph.
#ifndef MPT_DIALECT_MPT_MPTBASE_TD
#define MPT_DIALECT_MPT_MPTBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mpt/Interfaces/Decomposable.td"
include "mpt/Interfaces/PrecisionSemantics.td"

def MPT_Dialect : Dialect {
  let name = "mpt";
  let cppNamespace = "::mpt";
  let summary = "core graph of a training step on ranked, static tensors";
  let description = [{
    Value semantics; every tensor has a static shape. Shapes never broadcast implicitly: `mpt.broadcast` says where.
    Arithmetic on a narrow type means: compute the real-valued result (FP32 internals at least) and round it once to the
    result's type, to nearest even. Reductions and contractions accumulate as `#mpt.numerics` says, FP32 by default.
    Composites (softmax, norms, losses, GELU) keep FP32 internals whatever their operand types.

    Discardable attributes by which phases talk to each other; any other `mpt.` attribute is an error:

    | attribute | where | meaning |
    |---|---|---|
    | `mpt.name` | module, argument, result | its public name |
    | `mpt.default` | argument | value where the caller gives none |
    | `mpt.weight` | result of `@forward` | one of several losses: its weight in their sum |
    | `mpt.output` | argument of a function on buffers | it is a result |
    | `mpt.step` | module | the file holds a training step: output name to the state it updates |
    | `mpt.optimizer` | module | kind, learning rate and text of the optimizer |
    | `mpt.manifest` | module | what the driver adds to the manifest |
    | `mpt.momentum`, `mpt.statistics` | `mpt.batch_norm` | of the running statistics; the states that hold them |
    | `mpt.loss` | op | it computes the loss from the model's outputs |
    | `mpt.seed` | `train.scale_loss`, constant | differentiation starts here; a string names one of several losses |
    | `mpt.storable` | `train.state` | a slot that may be kept narrow between steps: first moments, not sums of squares |
    | `mpt.policy` | module | summary of the policy |
    | `mpt.precision` | op, `train.state` | decision of an assigning pass: types of operands and results, rule |
    | `mpt.lossy_casts` | function | how many of its casts round, so that verification notices one that was optimized away |
    | `mpt.rounding_streams` | module | next unused stream of random bits for stochastic rounding |
    | `mpt.checked` | op | its scalar must be finite for a step to count, beside the gradients |
    | `mpt.range` | constant, state | what conversion to a narrow type changed beyond rounding |
    | `mpt.recomputed` | op | rematerialized for the backward pass: it stays there |
    | `mpt.coded` | function | how many values wait for its backward pass as 8-bit codes, and the bytes that this saves |
    | `mpt.traffic` | function | least bytes that its kernels move: without and with sums |
    | `mpt.arena_bytes` | function | size of its planned arena |
    | `mpt.kernel`, `mpt.ops` | function | a generated kernel; the names of the ops in it |
    | `mpt.schedule` | kernel | name of its schedule |
    | `mpt.passes` | kernel | how often it reads its largest inputs, where that is not once |
    | `mpt.moved` | kernel | bytes that it moves of every argument at most; -1 where that is the whole |
    | `mpt.guarded` | kernel | arguments that it reads only where its other inputs want the reductions over them |
    | `mpt.in_place` | kernel | pairs of an input and an output that may share one buffer |
    | `mpt.grid`, `mpt.block` | GPU kernel | blocks of the grid, threads of a block: x, y, z |
    | `mpt.shared_bytes` | GPU kernel | shared memory that it declares |
    | `mpt.bf16` | `gpu.subgroup_mma_*` | its FP16 matrices hold bits of BF16, for which `!gpu.mma_matrix` has no name |
  }];
  let discardableAttrs = (ins "::mlir::StringAttr":$name, "::mlir::FloatAttr":$default, "::mlir::FloatAttr":$weight,
    "::mlir::UnitAttr":$output, "::mlir::DictionaryAttr":$step, "::mlir::DictionaryAttr":$optimizer,
    "::mlir::DictionaryAttr":$manifest, "::mlir::FloatAttr":$momentum, "::mlir::ArrayAttr":$statistics,
    "::mlir::UnitAttr":$loss, "::mlir::Attribute":$seed, "::mlir::UnitAttr":$storable,
    "::mlir::DictionaryAttr":$policy, "::mpt::PrecisionAttr":$precision, "::mlir::IntegerAttr":$lossy_casts,
    "::mlir::IntegerAttr":$rounding_streams, "::mlir::UnitAttr":$checked, "::mlir::StringAttr":$range,
    "::mlir::UnitAttr":$recomputed, "::mlir::DenseI64ArrayAttr":$coded, "::mlir::DenseI64ArrayAttr":$traffic,
    "::mlir::IntegerAttr":$arena_bytes, "::mlir::UnitAttr":$kernel, "::mlir::StringAttr":$ops,
    "::mlir::StringAttr":$schedule, "::mlir::IntegerAttr":$passes, "::mlir::DenseI64ArrayAttr":$moved,
    "::mlir::DenseI64ArrayAttr":$guarded, "::mlir::DenseI64ArrayAttr":$in_place, "::mlir::DenseI64ArrayAttr":$grid,
    "::mlir::DenseI64ArrayAttr":$block, "::mlir::IntegerAttr":$shared_bytes, "::mlir::UnitAttr":$bf16);
  let useDefaultAttributePrinterParser = 1;
  let hasConstantMaterializer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
}

// ---- types
def MPT_FloatType : AnyTypeOf<[F16, BF16, F32, F64, F8E4M3FN, F8E5M2]>;
def MPT_Float : StaticShapeTensorOf<[MPT_FloatType]>;
def MPT_Int : StaticShapeTensorOf<[AnyInteger]>;
def MPT_Bool : StaticShapeTensorOf<[I1]>;
def MPT_Number : StaticShapeTensorOf<[MPT_FloatType, AnyInteger]>;

// ---- attributes
class MPT_Attr<string name, string mnemonic_> : AttrDef<MPT_Dialect, name> { let mnemonic = mnemonic_; }

def MPT_NumericsAttr : MPT_Attr<"Numerics", "numerics"> {
  let summary = "types in which a contraction or reduction multiplies, accumulates and delivers";
  let description = [{
    `in` is the type its inputs are read in, `acc` the type of the running sum, `out` the type the sum is rounded to once.
    Lowering may widen `acc`, never narrow it.
  }];
  let parameters = (ins "::mlir::Type":$in, "::mlir::Type":$acc, "::mlir::Type":$out);
  let assemblyFormat = "`<` `in` `=` $in `,` `acc` `=` $acc `,` `out` `=` $out `>`";
}

class MPT_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mpt";
  let genSpecializedAttr = 0;
}
class MPT_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<MPT_Dialect, info, mnemonic>;

def MPT_Rounding : MPT_Enum<"Rounding", "rounding mode of a cast", [
  I32EnumAttrCase<"NearestEven", 0, "nearest_even">, I32EnumAttrCase<"Stochastic", 1, "stochastic">,
  I32EnumAttrCase<"TowardZero", 2, "toward_zero">]>;
def MPT_RoundingAttr : MPT_EnumAttr<MPT_Rounding, "rounding">;
def MPT_Overflow : MPT_Enum<"Overflow", "what a cast does with values beyond the result type's range", [
  I32EnumAttrCase<"Infinity", 0, "inf">, I32EnumAttrCase<"Saturate", 1, "saturate">]>;
def MPT_OverflowAttr : MPT_EnumAttr<MPT_Overflow, "overflow">;
def MPT_Predicate : MPT_Enum<"Predicate", "comparison; unordered operands compare false, except for ne", [
  I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>, I32EnumAttrCase<"le", 3>,
  I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]>;
def MPT_PredicateAttr : MPT_EnumAttr<MPT_Predicate, "predicate">;
def MPT_ReduceKind : MPT_Enum<"ReduceKind", "reduction operator", [
  I32EnumAttrCase<"sum", 0>, I32EnumAttrCase<"mean", 1>, I32EnumAttrCase<"max", 2>, I32EnumAttrCase<"min", 3>,
  I32EnumAttrCase<"prod", 4>]>;
def MPT_ReduceKindAttr : MPT_EnumAttr<MPT_ReduceKind, "reduce_kind">;
def MPT_LossReduction : MPT_Enum<"LossReduction", "how per-sample losses are combined", [
  I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"sum", 1>, I32EnumAttrCase<"mean", 2>]>;
def MPT_LossReductionAttr : MPT_EnumAttr<MPT_LossReduction, "loss_reduction">;
def MPT_GeluForm : MPT_Enum<"GeluForm", "exact (erf) or tanh form of GELU", [
  I32EnumAttrCase<"erf", 0>, I32EnumAttrCase<"tanh", 1>]>;
def MPT_GeluFormAttr : MPT_EnumAttr<MPT_GeluForm, "gelu_form">;
def MPT_ScatterKind : MPT_Enum<"ScatterKind", "how scattered updates meet the data", [
  I32EnumAttrCase<"assign", 0>, I32EnumAttrCase<"add", 1>, I32EnumAttrCase<"mul", 2>, I32EnumAttrCase<"min", 3>,
  I32EnumAttrCase<"max", 4>]>;
def MPT_ScatterKindAttr : MPT_EnumAttr<MPT_ScatterKind, "scatter_kind">;

def MPT_RecurrentCell : MPT_Enum<"RecurrentCell", "what a recurrent layer computes in a step", [
  I32EnumAttrCase<"lstm", 0>, I32EnumAttrCase<"gru", 1>, I32EnumAttrCase<"tanh", 2>, I32EnumAttrCase<"relu", 3>]>;
def MPT_RecurrentCellAttr : MPT_EnumAttr<MPT_RecurrentCell, "recurrent_cell">;

def MPT_PrecisionAttr : MPT_Attr<"Precision", "precision"> {
  let summary = "decision about the types of an op, or of a state, which has one result";
  let description = [{
    A type for each operand and result, or `unit` where nothing is decided; the rule that decided; `quantized` where the
    operands of a contraction get 8-bit types with scales.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$operands, "::mlir::ArrayAttr":$results, "::mlir::StringAttr":$rule,
    DefaultValuedParameter<"bool", "false">:$quantized);
  let assemblyFormat = "`<` struct($operands, $quantized, $results, $rule) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The type decided for a result or an operand, null where nothing is.
    ::mlir::Type resultType(unsigned index);
    ::mlir::Type operandType(unsigned index);
    /// Whether there is an entry for each operand and result of `op`.
    bool fits(::mlir::Operation *op);
  }];
}

// ---- op classes
// `numericClass`: one of ::mpt::NumericClass; bit i of `wideOperands`/`wideResults` keeps value i FP32 or wider.
class MPT_Op<string mnemonic, string numericClass, list<Trait> traits = [], string wideOperands = "0",
             string wideResults = "0", string uniform = "false">
    : Op<MPT_Dialect, mnemonic, [Pure, PrecisionSemantics] # traits> {
  code precisionMethods = "::mpt::NumericClass getNumericClass() { return ::mpt::NumericClass::" # numericClass # "; }\n"
    # "bool isWideOperand(unsigned index) { return (UINT64_C(" # wideOperands # ") >> index) & 1; }\n"
    # "bool isWideResult(unsigned index) { return (UINT64_C(" # wideResults # ") >> index) & 1; }\n"
    # "bool needsUniformType() { return " # uniform # "; }\n";
  let extraClassDeclaration = precisionMethods;
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

// Result types follow from operands and attributes.
class MPT_InferredOp<string mnemonic, string numericClass, list<Trait> traits = [], string wideOperands = "0",
                     string wideResults = "0", string uniform = "false">
    : MPT_Op<mnemonic, numericClass, [InferTypeOpAdaptor] # traits, wideOperands, wideResults, uniform>;

// The same, but results may have another float type than the one inferred (the inferred one is the default).
class MPT_FlexibleOp<string mnemonic, string numericClass, list<Trait> traits = [], string wideOperands = "0",
                     string wideResults = "0">
    : MPT_Op<mnemonic, numericClass, [InferTypeOpAdaptorWithIsCompatible] # traits, wideOperands, wideResults>;

#endif
