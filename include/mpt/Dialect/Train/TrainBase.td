// SPDX-License-Identifier: Apache-2.0
// Training dialect, roles of state, types and op class.
#ifndef MPT_DIALECT_TRAIN_TRAINBASE_TD
#define MPT_DIALECT_TRAIN_TRAINBASE_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mpt/Interfaces/Decomposable.td"
include "mpt/Interfaces/PrecisionSemantics.td"

def Train_Dialect : Dialect {
  let name = "train";
  let cppNamespace = "::mpt::train";
  let summary = "parameters, masters, optimizer slots, loss scale and generator as named state";
  let description = [{
    A module holds `train.state` symbols and the functions `step`, `gradients`, `evaluate`. A function reads state, computes
    on values, and writes new state; a write may be conditional on a scalar i1 value, decided on the device. All reads of
    a name see the value from before the call: writes take effect when the function returns.

    | attribute | where | meaning |
    |---|---|---|
    | `train.scale` | op | its results are scales: what ops that make scales are lowered to |
    | `train.part` | op | part of the step that it belongs to, where data flow does not tell (TrainingParts.h) |
    | `train.role` | argument, result | what the runtime takes it for, whatever its name is |
  }];
  let discardableAttrs = (ins "::mlir::UnitAttr":$scale, "::mpt::train::TrainingPartAttr":$part,
    "::mpt::train::RoleAttr":$role);
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
    // Names of the states that the compiler adds itself.
    static constexpr ::llvm::StringLiteral kGenerator = "mpt.rng";          // seed and step of the model's own random ops
    static constexpr ::llvm::StringLiteral kSteps = "mpt.step";             // counts the optimizer's steps
    static constexpr ::llvm::StringLiteral kRounding = "mpt.rounding";      // seed and step of stochastic rounding
    static constexpr ::llvm::StringLiteral kLossScale = "mpt.loss_scale";   // per loss
    static constexpr ::llvm::StringLiteral kGoodSteps = "mpt.good_steps";   // since the scale changed
    static constexpr ::llvm::StringLiteral kHysteresis = "mpt.hysteresis";  // overflows left before it shrinks
    static constexpr ::llvm::StringLiteral kScaleSteps = "mpt.scale_steps"; // of a scale that follows a schedule
    static constexpr ::llvm::StringLiteral kAmaxHistory = "mpt.amax_history";
    static constexpr ::llvm::StringLiteral kTensorScales = "mpt.tensor_scales";

    /// The symbol of a state for the tensor `name`. States and functions share a module's symbols, so the tensor `main` or
    /// `step.1` has an apostrophe before its name; no two tensors have one symbol.
    static std::string symbolOf(::llvm::StringRef name);
    /// The tensor's name that `symbolOf` had, or that of a state which is called after such a symbol (`'main.master`).
    static ::llvm::StringRef tensorName(::llvm::StringRef symbol);
  }];
  let useDefaultAttributePrinterParser = 1;
}

class Train_Op<string mnemonic, list<Trait> traits = []> : Op<Train_Dialect, mnemonic, traits>;

def Train_Role : I32EnumAttr<"Role", "what a state is for, up to accumulator, an argument or a result (numbered as mpt_role in mpt-c/types.h)", [
  I32EnumAttrCase<"parameter", 0>, I32EnumAttrCase<"master", 1>, I32EnumAttrCase<"slot", 2>,
  I32EnumAttrCase<"statistic", 3>, I32EnumAttrCase<"scale", 4>, I32EnumAttrCase<"rng", 5>,
  I32EnumAttrCase<"counter", 6>, I32EnumAttrCase<"constant", 7>, I32EnumAttrCase<"accumulator", 8>,
  I32EnumAttrCase<"loss", 12>, I32EnumAttrCase<"loss_scale", 13>, I32EnumAttrCase<"grad_norm", 14>,
  I32EnumAttrCase<"skipped", 15>, I32EnumAttrCase<"replica_number", 16>, I32EnumAttrCase<"replica_count", 17>,
  I32EnumAttrCase<"sum", 18>, I32EnumAttrCase<"max", 19>, I32EnumAttrCase<"scatter", 20>, I32EnumAttrCase<"gather", 21>,
  I32EnumAttrCase<"kept", 22>]> {
  let cppNamespace = "::mpt::train";
  let genSpecializedAttr = 0;
}
def Train_RoleAttr : EnumAttr<Train_Dialect, Train_Role, "role">;

def Train_Part : I32EnumAttr<"TrainingPart", "part of a training step; later parts read values of earlier ones", [
  I32EnumAttrCase<"forward", 0>, I32EnumAttrCase<"backward", 1>, I32EnumAttrCase<"update", 2>]> {
  let cppNamespace = "::mpt";
  let genSpecializedAttr = 0;
}
def Train_PartAttr : EnumAttr<Train_Dialect, Train_Part, "part">;

def Train_Float : StaticShapeTensorOf<[AnyFloat]>;
def Train_Number : StaticShapeTensorOf<[AnyFloat, AnyInteger]>;
def Train_I1 : StaticShapeTensorOf<[I1]>;
def Train_Int : StaticShapeTensorOf<[AnyInteger]>;

#endif
