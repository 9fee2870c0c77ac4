// SPDX-License-Identifier: Apache-2.0
// ONNX graphs as they are in the file: one generic op.
#ifndef MPT_DIALECT_ONNX_ONNXOPS_TD
#define MPT_DIALECT_ONNX_ONNXOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mpt/Interfaces/PrecisionSemantics.td"

def ONNX_Dialect : Dialect {
  let name = "onnx";
  let cppNamespace = "::mpt::onnx";
  let summary = "ONNX nodes, one to one";
  let description = [{
    What the importer writes first and the exporter writes last. Locations are node names (NameLoc). Absent optional operands
    are `onnx.absent`. On a module: `onnx.producer` is the file's producer, `onnx.model` the text of its ModelProto without
    nodes and tensors, and `onnx.declared_types` says that the file declares the types of its nodes' results. On a
    `train.state`, until `import-assign-roles`: `onnx.declared` is the exporter's word for the tensor, and
    `onnx.separated_from` the name of the tensor that it is a part of in the file.
  }];
  let discardableAttrs = (ins "::mlir::StringAttr":$producer, "::mlir::StringAttr":$model,
    "::mlir::UnitAttr":$declared_types, "::mpt::onnx::DeclaredAttr":$declared, "::mlir::StringAttr":$separated_from);
  let extraClassDeclaration = [{
    // Metadata of the files that we write: which form a training step has, and which tensors are its states.
    static constexpr ::llvm::StringLiteral kFormKey = "mpt.form";
    static constexpr ::llvm::StringLiteral kStatesKey = "mpt.states";
  }];
  let useDefaultAttributePrinterParser = 1;
}

def ONNX_Declared : I32EnumAttr<"Declared", "an exporter's word for a tensor", [
  I32EnumAttrCase<"Parameter", 0, "parameter">, I32EnumAttrCase<"Other", 1, "other">, // a buffer, or nothing of the module
  I32EnumAttrCase<"Folded", 2, "folded">,    // made from a module's tensors
  I32EnumAttrCase<"Moved", 3, "moved">]> {   // a parameter's elements in other places
  let cppNamespace = "::mpt::onnx";
  let genSpecializedAttr = 0;
}
def ONNX_DeclaredAttr : EnumAttr<ONNX_Dialect, ONNX_Declared, "declared">;

class ONNX_Op<string mnemonic, list<Trait> traits = []> : Op<ONNX_Dialect, mnemonic, traits>;

def ONNX_NodeOp : ONNX_Op<"node", [DeclareOpInterfaceMethods<PrecisionSemantics>]> {
  let summary = "one ONNX node";
  let description = [{
    `op_type` in `domain` ("" is ai.onnx) as defined in opset `version`. ONNX attributes keep their names in `attrs`;
    subgraphs are regions, in the order of `region_names`. An unnamed (absent) output still has a result. `output_names` are
    the results' names in a graph that goes back into a file; `details`, `opaque` (attributes) and `graphs` (headers of
    subgraphs) are the protobuf text of what no pass asks for, and an `unnamed` node's location is not its name.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, StrAttr:$domain, StrAttr:$op_type, I64Attr:$version,
    DictionaryAttr:$attrs, OptionalAttr<StrArrayAttr>:$region_names,
    OptionalAttr<StrArrayAttr>:$output_names, OptionalAttr<StrAttr>:$details, OptionalAttr<StrArrayAttr>:$opaque,
    OptionalAttr<StrArrayAttr>:$graphs, UnitAttr:$unnamed);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region VariadicRegion<AnyRegion>:$bodies);
}
def ONNX_InitializerOp : ONNX_Op<"initializer", [Pure]> {
  let summary = "an initializer of a graph that goes back into a file";
  let description = [{
    `value` holds the elements, or the text of a TensorProto where the IR has no such elements. Elements wider than the
    result's are rounded to nearest even when they are written; that way a large blob is never converted in memory. A
    finite value beyond the range becomes the largest finite one of its sign, and none becomes zero.
    `external` elements live in a file of their own; an `overridable` one is a default for a graph input.
  }];
  let arguments = (ins StrAttr:$name, AnyAttr:$value, UnitAttr:$external, UnitAttr:$overridable);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$name attr-dict `:` type($result)";
}
def ONNX_AbsentOp : ONNX_Op<"absent", [Pure]> {
  let summary = "an optional operand that is not given";
  let results = (outs NoneType:$value);
  let assemblyFormat = "attr-dict";
}
def ONNX_YieldOp : ONNX_Op<"yield", [Pure, Terminator]> {
  let summary = "results of a subgraph";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "operands attr-dict `:` type(operands)";
}

#endif
