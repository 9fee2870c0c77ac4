// SPDX-License-Identifier: Apache-2.0
// Dialect definition, attributes and op class of library calls on tensors.
#ifndef MPT_DIALECT_LIBRARY_LIBRARYBASE_TD
#define MPT_DIALECT_LIBRARY_LIBRARYBASE_TD

include "mpt/Dialect/Library/LibraryEnums.td"
include "mpt/Dialect/MPT/MPTBase.td"
include "mpt/Interfaces/GemmLike.td"

def Library_Dialect : Dialect {
  let name = "library";
  let cppNamespace = "::mpt::library";
  let summary = "library calls on tensors: what each call computes, and in which form";
  let description = [{
    One op a library call, with value semantics: operands and results are static tensors, and everything that the call computes
    beside its main result is a result of its own. Passes of stage library choose the form (layout, epilogue, side results);
    bufferization turns each op into one op of dialect `rt` and decides nothing.

    | attribute | on | says |
    |---|---|---|
    | `library.layouts` | op | one `#library.layout` a result, where one of them is not row-major |
    | `library.placed` | op with places for its operands | numbers of the operands that their makers write there |
    | `library.lent` | fusion | one entry a result: the state in whose memory it lies until the function ends, or `unit` |
    | `library.packed` | `train.state` | 16-bit type to which every call that reads it rounds it; no narrow copy is kept |
    | `library.apart` | function | of each softmax that became no attention, or repeats what it could share: node and reason, two strings |
  }];
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mpt::MPTDialect"];
  let discardableAttrs = (ins "::mlir::ArrayAttr":$layouts, "::mlir::DenseI64ArrayAttr":$placed, "::mlir::ArrayAttr":$apart,
    "::mlir::TypeAttr":$packed, "::mlir::ArrayAttr":$lent);
  let hasOperationAttrVerify = 1;
}

class Library_Attr<string name, string mnemonic_> : AttrDef<Library_Dialect, name> { let mnemonic = mnemonic_; }
class Library_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Library_Dialect, info, mnemonic>;
class Library_EnumDefault<EnumAttrInfo info, string value> : EnumParameter<info> { let defaultValue = value; }

// ---- attributes
def Library_EpilogueAttr : Library_Attr<"Epilogue", "epilogue"> {
  let summary = "what a GEMM does between its sums and its stored result";
  let description = [{
    `activation` is applied after the bias. `round`: the scaled sum is rounded to the result's type before the bias is added,
    and again before the activation; without it there is one rounding, at the end. `keep`: the value before the activation is a
    result, too. `sum`: one of the call's matrices is summed along the dimension that its vector does not have.

    ```mlir
    #library.epilogue<activation = gelu_tanh, keep = true>
    #library.epilogue<sum = b>
    ```
  }];
  let parameters = (ins Library_EnumDefault<Library_Activation, "::mpt::library::Activation::none">:$activation,
    DefaultValuedParameter<"bool", "false">:$round, DefaultValuedParameter<"bool", "false">:$keep,
    Library_EnumDefault<Library_GemmSum, "::mpt::library::GemmSum::none">:$sum);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    static EpilogueAttr none(::mlir::MLIRContext *context) {
      return get(context, Activation::none, false, false, GemmSum::none);
    }
    EpilogueAttr withActivation(Activation value) const {
      return get(getContext(), value, getRound(), getKeep(), getSum());
    }
    EpilogueAttr withRound(bool value) const { return get(getContext(), getActivation(), value, getKeep(), getSum()); }
    EpilogueAttr withKeep(bool value) const { return get(getContext(), getActivation(), getRound(), value, getSum()); }
    EpilogueAttr withSum(GemmSum value) const {
      return get(getContext(), getActivation(), getRound(), getKeep(), value);
    }
    /// The epilogue of the call that multiplies the transposes in the other order.
    EpilogueAttr transposed() const {
      GemmSum sum = getSum() == GemmSum::a ? GemmSum::b : getSum() == GemmSum::b ? GemmSum::a : getSum();
      return withSum(sum);
    }
    bool isNone() const { return *this == none(getContext()); }
  }];
}

def Library_LayoutAttr : Library_Attr<"Layout", "layout"> {
  let summary = "a tensor's dimensions from the outermost to the innermost in memory";
  let description = [{
    C1: `order` has every number below the tensor's rank once.

    ```mlir
    #library.layout<[0, 2, 3, 1]>  // channels-last
    ```
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$order);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}
// ---- op class
// `numericClass` is an enumerator of ::mpt::NumericClass.
class Library_Op<string mnemonic, string numericClass, list<Trait> traits = []>
    : Op<Library_Dialect, mnemonic, [Pure, PrecisionSemantics] # traits> {
  code precisionMethods = "::mpt::NumericClass getNumericClass() { return ::mpt::NumericClass::" # numericClass # "; }\n";
  let extraClassDeclaration = precisionMethods;
}

#endif
