// SPDX-License-Identifier: Apache-2.0
// precision-cast-nodes: carries out the decisions of precision-assign-nodes (lib/Precision/Solve/CastPlacement.h).
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/ONNX/Constants.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Precision/Constants.h"
#include "mpt/Precision/Settings.h"
#include "mpt/Support/Refusal.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_CASTNODES
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "precision-cast-nodes"

namespace {
class CastNodes : public mpt::impl::CastNodesBase<CastNodes> {
public:
  void runOnOperation() override {
    if (!hasAttr<MPTDialect::PolicyAttrHelper>(getOperation())) {
      getOperation().emitError() << "expected the decisions of precision-assign-nodes, got none: run it first";
      return signalPassFailure();
    }
    auto main = getOperation().lookupSymbol<func::FuncOp>("main");
    PrecisionSettings settings = PrecisionSettings::of(getOperation());
    if (!main || main.isExternal() || !settings.narrows())
      return;
    wide = Float32Type::get(&getContext());
    narrow = settings.storage;
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
    for (onnx::NodeOp node : modelCasts)
      bypass(node);
    for (onnx::NodeOp node : llvm::reverse(modelCasts))
      if (bypassed.contains(node) && node.use_empty())
        node.erase();
  }

private:
  StringAttr text(const Twine &value) { return StringAttr::get(&getContext(), value); }

  /// Remembers the names that `op` defines.
  void note(Operation *op) {
    if (auto name = dyn_cast<NameLoc>(op->getLoc()))
      names.insert(name.getName());
    for (OpResult result : op->getResults())
      names.insert(onnx::resultName(result));
    for (Region &body : op->getRegions())
      for (BlockArgument argument : body.getArguments())
        names.insert(nameOf(argument));
    auto node = dyn_cast<onnx::NodeOp>(op);
    if (!node)
      return;
    if (onnx::isCast(node, wide, narrow) && node->getBlock() == node.getOperand(0).getParentBlock())
      narrowings.try_emplace(node.getOperand(0), node);
    if (onnx::isCast(node, wide, narrow) || onnx::isCast(node, narrow, wide))
      modelCasts.push_back(node);
  }

  StringAttr nameOf(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()))
        if (auto name = getArgAttr<MPTDialect::NameAttrHelper>(function, argument.getArgNumber()))
          return name;
      return text(nodeName(argument.getLoc()));
    }
    return onnx::resultName(cast<OpResult>(value));
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
    if (op->hasTrait<OpTrait::IsTerminator>()) {
      for (OpOperand &operand : op->getOpOperands())
        if (!originalTypes.empty())
          if (auto original = originalTypes.find(operand.get()); original != originalTypes.end())
            operand.set(restored(operand.get(), original->second, op));
      return success();
    }
    auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(op);
    if (!decision)
      return success();
    if (!isa<onnx::NodeOp>(op) || !decision.fits(op))
      return op->emitOpError() << "expected mpt.precision with one type for each operand and result of a node";
    for (OpOperand &operand : op->getOpOperands())
      if (Type type = decision.operandType(operand.getOperandNumber()))
        operand.set(converted(operand.get(), type, op));
    for (OpResult result : op->getResults()) {
      Type type = decision.resultType(result.getResultNumber());
      auto tensor = dyn_cast<TensorType>(result.getType());
      if (!type || !tensor || tensor.getElementType() == type)
        continue;
      originalTypes[result] = tensor;
      result.setType(tensor.clone(type));
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
    Operation *place = value.getParentBlock()->findAncestorOpInBlock(*user);
    // Values that the model widened are there in the narrow type, and ones that it narrows are not narrowed twice.
    if (auto widening = value.getDefiningOp<onnx::NodeOp>(); widening && onnx::isCast(widening, type, wide)) {
      bypassed.insert(widening);
      return cast = widening.getOperand(0);
    }
    if (auto known = narrowings.find(value); known != narrowings.end() && type == narrow) {
      if (!known->second->isBeforeInBlock(place))
        known->second->moveBefore(place);
      return cast = known->second.getResult(0);
    }
    if (Operation *copy = convertedConstant(value, type))
      return cast = copy->getResult(0);
    OpBuilder builder(place);
    StringAttr name = freshName(value, type);
    auto node = onnx::NodeOp::create(
        builder, NameLoc::get(name), TypeRange(have.clone(type)), ValueRange(value), builder.getStringAttr(""),
        builder.getStringAttr("Cast"), builder.getI64IntegerAttr(castVersion()),
        builder.getDictionaryAttr(builder.getNamedAttr("to", builder.getI64IntegerAttr(onnx::elementTypeNumber(type)))),
        ArrayAttr(), builder.getArrayAttr(name), StringAttr(), ArrayAttr(), ArrayAttr(), UnitAttr(), 0);
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
    if (!onnx::isConstant(op, narrow))
      return nullptr;
    if (onnx::isOverridable(op)) {
      refuse(DEBUG_TYPE, op) << "not converted at compile time: expected a constant, got a default of a graph input";
      return nullptr;
    }
    StringAttr name = freshName(value, type);
    NarrowedConstant narrowed;
    if (!onnx::isConvertedWhenWritten(op)) {
      narrowed = narrowConstant(cast<ElementsAttr>(onnx::contentsOf(op)), cast<FloatType>(type));
      if (!narrowed.value) {
        refuse(DEBUG_TYPE, op) << "not converted at compile time: expected elements in memory, got none";
        return nullptr;
      }
    }
    Operation *copy = onnx::copyConstant(op, type, name, narrowed.value);
    if (!narrowed.note.empty())
      setAttr<MPTDialect::RangeAttrHelper>(copy, StringAttr::get(&getContext(), narrowed.note));
    copies.emplace_back(op, copy);
    ++numConstants;
    return copy;
  }

  /// Readers of a cast of the model that no longer converts, or only goes back, read its operand. Where that is a
  /// result of a graph, its name goes along, or else the cast stays for it.
  void bypass(onnx::NodeOp node) {
    Value source = node.getOperand(0), result = node.getResult(0);
    if (auto widening = source.getDefiningOp<onnx::NodeOp>();
        widening && onnx::isCast(widening, narrow, wide) && elementOf(result) == narrow) {
      bypassed.insert(widening);
      source = widening.getOperand(0);
    }
    if (elementOf(source) != elementOf(result)) {
      refuse(DEBUG_TYPE, node) << "not bypassed: expected a cast that no longer converts, got one from "
                               << elementOf(source) << " to " << elementOf(result);
      return;
    }
    bypassed.insert(node);
    auto isEnd = [](Operation *user) { return user->hasTrait<OpTrait::IsTerminator>(); };
    auto maker = source.getDefiningOp<onnx::NodeOp>();
    if (llvm::any_of(result.getUsers(), isEnd) && maker && maker.getOutputNames() &&
        maker->getBlock() == node->getBlock() && llvm::none_of(source.getUsers(), isEnd)) {
      SmallVector<Attribute> outputs(maker.getOutputNamesAttr().getValue());
      outputs[cast<OpResult>(source).getResultNumber()] = nameOf(result);
      maker.setOutputNamesAttr(ArrayAttr::get(&getContext(), outputs));
      result.replaceAllUsesWith(source);
      return;
    }
    result.replaceUsesWithIf(source, [&](OpOperand &use) { return !isEnd(use.getOwner()); });
  }

  /// A constant that is now read in one type only keeps its name and its place.
  void settle(Operation *original, Operation *copy) {
    if (!original->use_empty())
      return;
    onnx::takeName(copy, original);
    original->erase();
  }

  Type wide, narrow;
  DenseMap<std::pair<Value, Type>, Value> casts;
  DenseMap<Value, onnx::NodeOp> narrowings;  ///< the model's own casts, by their operands of the same block
  std::vector<onnx::NodeOp> modelCasts;      ///< from FP32 to the narrow type and back
  DenseSet<Operation *> bypassed;            ///< casts of the model with fewer readers than before
  DenseMap<Value, TensorType> originalTypes; ///< of narrowed results
  DenseSet<Value> restoredNames;
  DenseSet<StringAttr> names;
  std::vector<std::pair<Operation *, Operation *>> copies; ///< original constant, converted one
  int64_t opset = 0;
};
} // namespace
