// precision-cast-nodes: carries out the decisions of precision-assign-nodes.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Precision/Attributes.h"
#include "mpt/Precision/Constants.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_CASTNODES
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
class CastNodes : public mpt::impl::CastNodesBase<CastNodes> {
public:
  void runOnOperation() override {
    if (!getOperation()->hasAttr(kPolicyAttr)) {
      getOperation().emitError() << "expected the decisions of precision-assign-nodes, got none: run it first";
      return signalPassFailure();
    }
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    if (!main || main.isExternal())
      return;
    SmallVector<Operation *> nodes;
    main.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
      nodes.push_back(op);
      note(op);
    });
    for (BlockArgument argument : main.getArguments())
      names.insert(nameOf(argument));
    for (Operation *op : nodes)
      if (failed(apply(op)))
        return signalPassFailure();
    for (auto [original, copy] : copies)
      settle(original, copy);
  }

private:
  StringAttr text(const Twine &value) { return StringAttr::get(&getContext(), value); }

  /// Remembers the names that `op` defines.
  void note(Operation *op) {
    if (auto name = dyn_cast<NameLoc>(op->getLoc()))
      names.insert(name.getName());
    if (auto initializer = dyn_cast<onnx::InitializerOp>(op))
      names.insert(initializer.getNameAttr());
    auto node = dyn_cast<onnx::NodeOp>(op);
    if (!node)
      return;
    if (ArrayAttr outputs = node.getOutputNamesAttr())
      for (auto name : outputs.getAsRange<StringAttr>())
        names.insert(name);
    for (Region &body : node.getBodies())
      for (BlockArgument argument : body.getArguments())
        names.insert(nameOf(argument));
  }

  StringAttr nameOf(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
        if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kNameAttr))
          return name;
      return text(nodeName(argument.getLoc()));
    }
    Operation *op = value.getDefiningOp();
    if (auto initializer = dyn_cast<onnx::InitializerOp>(op))
      return initializer.getNameAttr();
    auto node = dyn_cast<onnx::NodeOp>(op);
    unsigned index = cast<OpResult>(value).getResultNumber();
    if (node && node.getOutputNames() && index < node.getOutputNames()->size())
      return cast<StringAttr>((*node.getOutputNames())[index]);
    return text(nodeName(op->getLoc()));
  }

  /// "x_float16", or with a number where that is taken.
  StringAttr freshName(Value value, Type type) {
    std::string base = (nameOf(value).getValue() + (type.isF16()    ? "_float16"
                                                    : type.isBF16() ? "_bfloat16"
                                                                    : "_float"))
                           .str();
    StringAttr name = text(base);
    for (unsigned i = 1; !names.insert(name).second; ++i)
      name = text(base + "_" + Twine(i));
    return name;
  }

  LogicalResult apply(Operation *op) {
    if (isa<func::ReturnOp, onnx::YieldOp>(op)) {
      for (OpOperand &operand : op->getOpOperands())
        if (!originalTypes.empty())
          if (auto original = originalTypes.find(operand.get()); original != originalTypes.end())
            operand.set(restored(operand.get(), original->second, op));
      return success();
    }
    auto decision = op->getAttrOfType<DictionaryAttr>(kPrecisionAttr);
    if (!decision)
      return success();
    auto operands = decision.getAs<ArrayAttr>("operands"), results = decision.getAs<ArrayAttr>("results");
    if (!isa<onnx::NodeOp>(op) || !operands || !results || operands.size() != op->getNumOperands() ||
        results.size() != op->getNumResults())
      return op->emitOpError() << "expected mpt.precision with one type for each operand and result of a node";
    for (auto [operand, wanted] : llvm::zip_equal(op->getOpOperands(), operands))
      if (auto type = dyn_cast<TypeAttr>(wanted))
        operand.set(converted(operand.get(), type.getValue(), op));
    for (auto [result, wanted] : llvm::zip_equal(op->getResults(), results)) {
      auto type = dyn_cast<TypeAttr>(wanted);
      auto tensor = dyn_cast<TensorType>(result.getType());
      if (!type || !tensor || tensor.getElementType() == type.getValue())
        continue;
      originalTypes[result] = tensor;
      result.setType(tensor.clone(type.getValue()));
    }
    // A conversion states its result's type itself.
    auto node = cast<onnx::NodeOp>(op);
    if (node.getOpType() == "Cast" && node.getDomain().empty()) {
      NamedAttrList attributes(node.getAttrs());
      attributes.set("to", Builder(op).getI64IntegerAttr(onnx::elementTypeNumber(elementOf(op->getResult(0)))));
      node.setAttrsAttr(attributes.getDictionary(&getContext()));
    }
    return success();
  }

  static Type elementOf(Value value) { return cast<TensorType>(value.getType()).getElementType(); }

  /// `value`, a result of a graph, in its original type and under its original name.
  Value restored(Value value, TensorType original, Operation *user) {
    Value result = converted(value, original.getElementType(), user);
    auto node = value.getDefiningOp<onnx::NodeOp>();
    auto cast = result.getDefiningOp<onnx::NodeOp>();
    if (!node || !cast || !node.getOutputNames() || restoredNames.contains(value))
      return result;
    restoredNames.insert(value);
    unsigned index = mlir::cast<OpResult>(value).getResultNumber();
    SmallVector<Attribute> outputs(node.getOutputNamesAttr().getValue());
    Attribute old = outputs[index];
    outputs[index] = freshName(value, elementOf(value));
    node.setOutputNamesAttr(ArrayAttr::get(&getContext(), outputs));
    cast.setOutputNamesAttr(ArrayAttr::get(&getContext(), {old}));
    return result;
  }

  Value converted(Value value, Type type, Operation *user) {
    auto have = dyn_cast<TensorType>(value.getType());
    if (!have || have.getElementType() == type)
      return value;
    Value &cast = casts[{value, type}];
    if (cast)
      return cast;
    if (Operation *copy = convertedConstant(value, type))
      return cast = copy->getResult(0);
    Operation *place = value.getParentBlock()->findAncestorOpInBlock(*user);
    OpBuilder builder(place);
    StringAttr name = freshName(value, type);
    auto node = onnx::NodeOp::create(
        builder, NameLoc::get(name), TypeRange(have.clone(type)), ValueRange(value), builder.getStringAttr(""),
        builder.getStringAttr("Cast"), builder.getI64IntegerAttr(castVersion()),
        builder.getDictionaryAttr(builder.getNamedAttr("to", builder.getI64IntegerAttr(onnx::elementTypeNumber(type)))),
        ArrayAttr(), builder.getArrayAttr(name), 0);
    ++numCasts;
    return cast = node.getResult(0);
  }

  /// Opset of the model, which the nodes carry.
  int64_t castVersion() {
    if (!opset) {
      getOperation().walk([&](onnx::NodeOp node) {
        if (!node.getDomain().empty())
          return WalkResult::advance();
        opset = node.getVersion();
        return WalkResult::interrupt();
      });
    }
    return opset;
  }

  /// A copy of the constant `value` in `type`; null where it is no constant that may change.
  Operation *convertedConstant(Value value, Type type) {
    Operation *op = value.getDefiningOp();
    auto initializer = dyn_cast_or_null<onnx::InitializerOp>(op);
    auto node = dyn_cast_or_null<onnx::NodeOp>(op);
    if ((!initializer || initializer->hasAttr("mpt.overridable")) && !(node && onnx::isConstantNode(node)))
      return nullptr;
    OpBuilder builder(op);
    builder.setInsertionPointAfter(op);
    Operation *copy = builder.clone(*op);
    copy->getResult(0).setType(cast<TensorType>(value.getType()).clone(type));
    StringAttr name = freshName(value, type);
    std::string note;
    if (initializer) {
      cast<onnx::InitializerOp>(copy).setNameAttr(name);
      if (auto dense = dyn_cast<DenseElementsAttr>(initializer.getValue())) {
        NarrowedConstant narrowed = narrowConstant(dense, cast<FloatType>(type));
        cast<onnx::InitializerOp>(copy).setValueAttr(narrowed.value);
        note = narrowed.note;
      }
    } else {
      NamedAttrList attributes(node.getAttrs());
      auto scalar = RankedTensorType::get({}, builder.getF32Type());
      ElementsAttr elements = DenseElementsAttr::get(RankedTensorType::get({1}, builder.getF32Type()), 0.0f);
      if (auto given = dyn_cast_or_null<ElementsAttr>(attributes.get("value")))
        elements = given;
      else if (auto number = dyn_cast_or_null<FloatAttr>(attributes.erase("value_float")))
        elements = DenseElementsAttr::get(scalar, number.getValue());
      NarrowedConstant narrowed = narrowConstant(elements, cast<FloatType>(type));
      if (!narrowed.value) {
        copy->erase();
        return nullptr;
      }
      attributes.set("value", narrowed.value);
      note = narrowed.note;
      cast<onnx::NodeOp>(copy).setAttrsAttr(attributes.getDictionary(&getContext()));
      cast<onnx::NodeOp>(copy).setOutputNamesAttr(builder.getArrayAttr(name));
      copy->setLoc(NameLoc::get(name));
    }
    if (!note.empty())
      copy->setAttr(kRangeAttr, builder.getStringAttr(note));
    copies.emplace_back(op, copy);
    ++numConstants;
    return copy;
  }

  /// A constant that is now read in one type only keeps its name and its place.
  void settle(Operation *original, Operation *copy) {
    if (!original->use_empty())
      return;
    copy->setLoc(original->getLoc());
    if (auto initializer = dyn_cast<onnx::InitializerOp>(original))
      cast<onnx::InitializerOp>(copy).setNameAttr(initializer.getNameAttr());
    else
      cast<onnx::NodeOp>(copy).setOutputNamesAttr(cast<onnx::NodeOp>(original).getOutputNamesAttr());
    original->erase();
  }

  DenseMap<std::pair<Value, Type>, Value> casts;
  DenseMap<Value, TensorType> originalTypes; ///< of narrowed results
  DenseSet<Value> restoredNames;
  DenseSet<StringAttr> names;
  std::vector<std::pair<Operation *, Operation *>> copies; ///< original constant, converted one
  int64_t opset = 0;
};
} // namespace
