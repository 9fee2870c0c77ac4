// SPDX-License-Identifier: Apache-2.0
// Type variables of ONNX schemas as groups of operands and results.
#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Dialect/ONNX/Schemas.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"

#include "onnx/defs/schema.h"
#include "llvm/ADT/StringMap.h"

#include <mutex>

using namespace mlir;
using namespace mpt::onnx;
using ::onnx::OpSchema;

namespace {

constexpr int kOther = -3; ///< a sequence or an optional somewhere: the whole node is fixed

/// The groups of a schema's formal parameters for one narrow type.
struct FormalTypes {
  SmallVector<int, 4> inputs, outputs; ///< group, NodeTypes::kFixed, kAny or kOther
  bool variadicInputs = false, variadicOutputs = false, known = false;
  bool statesResult = false; ///< the first result may be of the narrow type
  int groups = 0;

  static int at(ArrayRef<int> formals, bool variadic, size_t index) {
    if (index < formals.size())
      return formals[index];
    return variadic && !formals.empty() ? formals.back() : NodeTypes::kFixed;
  }
};

bool allows(const OpSchema::TypeConstraintParam &constraint, StringRef type) {
  return llvm::is_contained(constraint.allowed_type_strs, type.str());
}

FormalTypes makeFormalTypes(const OpSchema &schema, StringRef narrow) {
  FormalTypes result;
  result.known = true;
  std::string narrowText = ("tensor(" + narrow + ")").str();
  llvm::StringMap<int> groups;
  for (const auto &constraint : schema.typeConstraintParams()) {
    auto uses = [&](const auto &formals) {
      return llvm::count_if(formals, [&](const auto &f) { return f.GetTypeStr() == constraint.type_param_str; });
    };
    auto inputs = uses(schema.inputs()), outputs = uses(schema.outputs());
    int &group = groups.try_emplace(constraint.type_param_str, NodeTypes::kFixed).first->second;
    if (llvm::none_of(constraint.allowed_type_strs, [](StringRef type) { return type.starts_with("tensor("); }))
      group = kOther;
    if (!schema.outputs().empty() && schema.outputs()[0].GetTypeStr() == constraint.type_param_str)
      result.statesResult = allows(constraint, narrowText);
    if (!allows(constraint, "tensor(float)") || !allows(constraint, narrowText))
      continue;
    // A type that only an attribute decides stays; one that nothing else depends on is read as it comes.
    if (inputs == 1 && outputs == 0)
      group = NodeTypes::kAny;
    else if (inputs > 0)
      group = result.groups++;
  }
  auto add = [&](const auto &formals, SmallVector<int, 4> &out, bool &variadic) {
    for (const auto &formal : formals) {
      auto known = groups.find(formal.GetTypeStr());
      int group = known == groups.end() ? NodeTypes::kFixed : known->second;
      StringRef text = formal.GetTypeStr();
      if (known == groups.end() && !text.starts_with("tensor("))
        group = kOther;
      if (formal.GetOption() == OpSchema::Variadic) {
        variadic = true;
        if (!formal.GetIsHomogeneous())
          group = kOther;
      }
      out.push_back(group);
    }
  };
  // Its result is of the type of its scale; type inference gives it the type of its data. One group suits both.
  if (schema.Name() == "RMSNormalization")
    groups["T"] = groups["V"];
  add(schema.inputs(), result.inputs, result.variadicInputs);
  add(schema.outputs(), result.outputs, result.variadicOutputs);
  return result;
}

/// Schemas are looked up once a type, version and narrow type.
const FormalTypes &formalTypes(NodeOp node, StringRef narrow) {
  static std::mutex mutex;
  static llvm::StringMap<FormalTypes> cache;
  std::string key = (node.getDomain() + ":" + node.getOpType() + ":" + Twine(node.getVersion()) + ":" + narrow).str();
  std::lock_guard<std::mutex> lock(mutex);
  auto [entry, isNew] = cache.try_emplace(key);
  if (isNew)
    if (const OpSchema *schema =
            schemas().GetSchema(node.getOpType().str(), static_cast<int>(node.getVersion()), node.getDomain().str()))
      entry->second = makeFormalTypes(*schema, narrow);
  return entry->second;
}

StringRef nameOf(Type type) { return type.isF16() ? "float16" : type.isBF16() ? "bfloat16" : ""; }

bool isKnownTensor(Type type) { return isa<TensorType>(type); }

/// Without this attribute such an op's result has the type of its operand.
bool takesTypeFromOperand(NodeOp node) {
  return llvm::is_contained({"Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"}, node.getOpType()) &&
         !node.getAttrs().contains("dtype");
}

} // namespace

bool mpt::onnx::isFloat32Tensor(Type type) {
  auto tensor = dyn_cast<TensorType>(type);
  return tensor && tensor.getElementType().isF32();
}

int mpt::onnx::elementTypeNumber(Type type) {
  using ::onnx::TensorProto;
  if (type.isF32())
    return TensorProto::FLOAT;
  if (type.isF64())
    return TensorProto::DOUBLE;
  if (type.isF16())
    return TensorProto::FLOAT16;
  if (type.isBF16())
    return TensorProto::BFLOAT16;
  if (isa<Float8E4M3FNType>(type))
    return TensorProto::FLOAT8E4M3FN;
  if (isa<Float8E5M2Type>(type))
    return TensorProto::FLOAT8E5M2;
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return TensorProto::UNDEFINED;
  bool isUnsigned = integer.isUnsigned();
  switch (integer.getWidth()) {
  case 1:
    return TensorProto::BOOL;
  case 8:
    return isUnsigned ? TensorProto::UINT8 : TensorProto::INT8;
  case 16:
    return isUnsigned ? TensorProto::UINT16 : TensorProto::INT16;
  case 32:
    return isUnsigned ? TensorProto::UINT32 : TensorProto::INT32;
  case 64:
    return isUnsigned ? TensorProto::UINT64 : TensorProto::INT64;
  default:
    return TensorProto::UNDEFINED;
  }
}

bool mpt::onnx::isCast(NodeOp node, Type from, Type to) {
  if (node.getOpType() != "Cast" || !node.getDomain().empty() || node.getNumOperands() != 1 ||
      node.getNumResults() != 1)
    return false;
  auto source = dyn_cast<TensorType>(node.getOperand(0).getType());
  auto result = dyn_cast<TensorType>(node.getResult(0).getType());
  return source && result && source.getElementType() == from && result.getElementType() == to;
}

bool mpt::onnx::isConstantNode(NodeOp node, Type narrow) {
  if (narrow && !formalTypes(node, nameOf(narrow)).statesResult)
    return false;
  if (!node.getDomain().empty() || node.getNumResults() != 1 || !isFloat32Tensor(node.getResult(0).getType()))
    return false;
  auto value = dyn_cast_or_null<ElementsAttr>(node.getAttrs().get("value"));
  if (node.getOpType() == "ConstantOfShape")
    return !node.getAttrs().contains("value") || value;
  return node.getOpType() == "Constant" && (value || node.getAttrs().contains("value_float"));
}

NodeTypes mpt::onnx::nodeTypes(NodeOp node, Type narrow) {
  NodeTypes result;
  size_t operands = node.getNumOperands(), results = node.getNumResults();
  result.operands.assign(operands, NodeTypes::kFixed);
  result.results.assign(results, NodeTypes::kFixed);
  StringRef narrowName = nameOf(narrow);
  if (narrowName.empty() || !node.getBodies().empty() || takesTypeFromOperand(node))
    return result;
  const FormalTypes &formals = formalTypes(node, narrowName);
  if (!formals.known || llvm::is_contained(formals.inputs, kOther) || llvm::is_contained(formals.outputs, kOther))
    return result;
  // Groups with a value that is not an FP32 tensor keep their types.
  SmallVector<bool, 4> movable(formals.groups, true);
  int settled = formals.groups; // the first group of floats that are not FP32
  auto visit = [&](ValueRange values, ArrayRef<int> groups, bool variadic, SmallVector<int, 4> &out) {
    for (auto [i, value] : llvm::enumerate(values)) {
      out[i] = FormalTypes::at(groups, variadic, i);
      bool absent = isa_and_nonnull<AbsentOp>(value.getDefiningOp());
      if (out[i] >= 0 && !absent && !(isKnownTensor(value.getType()) && isFloat32Tensor(value.getType())) &&
          !(isa<NoneType>(value.getType()) && value.use_empty() && isa_and_nonnull<NodeOp>(value.getDefiningOp()) &&
            value.getDefiningOp() == node.getOperation())) {
        movable[out[i]] = false;
        if (auto tensor = dyn_cast<TensorType>(value.getType()); tensor && isa<FloatType>(tensor.getElementType()))
          settled = std::min(settled, out[i]);
      }
    }
  };
  visit(node.getInputs(), formals.inputs, formals.variadicInputs, result.operands);
  visit(node.getOutputs(), formals.outputs, formals.variadicOutputs, result.results);
  SmallVector<int, 4> number(formals.groups, NodeTypes::kFixed);
  for (SmallVector<int, 4> *slots : {&result.operands, &result.results})
    for (int &slot : *slots) {
      if (slot < 0)
        continue;
      if (movable[slot] && number[slot] == NodeTypes::kFixed)
        number[slot] = result.groups++;
      int group = slot;
      slot = number[group];
      // Where the data is narrow already, no other group (statistics) takes its place.
      if (slot >= 0 && result.main == NodeTypes::kFixed && group < settled)
        result.main = slot;
    }
  // A conversion from integers makes its result in whatever float type is asked for.
  if (node.getOpType() == "Cast" && node.getDomain().empty() && results == 1 &&
      isFloat32Tensor(node.getResult(0).getType())) {
    auto source = dyn_cast<TensorType>(node.getOperand(0).getType());
    // One from FP32 to FP32 moves its operand; it would be a widening once that is narrow.
    bool moves = source && source.getElementType().isF32();
    if (moves || (source && isa<IntegerType>(source.getElementType()))) {
      result.results[0] = result.main = 0;
      result.groups = 1;
    }
    if (moves)
      result.operands[0] = 0;
  }
  return result;
}
