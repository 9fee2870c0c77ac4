// SPDX-License-Identifier: Apache-2.0
// Running sums of squares: backward from the roots to the squares, then forward to the divisions.
#include "mpt/Precision/OptimizerRules.h"

#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "mlir/IR/BuiltinAttributes.h"

using namespace mlir;
using namespace mpt;

namespace {

const char *const kSecondMoment =
    "optimizer.second_moment -> wide: sums of squared gradients leave the narrow range from below";
const char *const kEpsilon = "optimizer.epsilon -> wide: a narrow type loses the epsilon that protects the division";
/// Steps on the way between a root and its square; optimizers take about eight.
constexpr unsigned kLongestPath = 32;

onnx::NodeOp nodeOf(Value value, StringRef opType) {
  auto node = value.getDefiningOp<onnx::NodeOp>();
  return node && node.getDomain().empty() && node.getOpType() == opType ? node : onnx::NodeOp();
}

bool isScalar(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.hasStaticShape() && type.getNumElements() == 1;
}

/// The value of a constant of one element.
std::optional<double> constantScalar(Value value) {
  Attribute contents;
  if (auto initializer = value.getDefiningOp<onnx::InitializerOp>())
    contents = initializer.getValue();
  else if (auto node = nodeOf(value, "Constant"); node && !(contents = node.getAttrs().get("value")))
    contents = node.getAttrs().get("value_float");
  if (auto number = dyn_cast_or_null<FloatAttr>(contents))
    return number.getValueAsDouble();
  auto dense = dyn_cast_or_null<DenseElementsAttr>(contents);
  if (!dense || dense.getNumElements() != 1)
    return std::nullopt;
  if (isa<FloatType>(dense.getElementType())) {
    APFloat number = *dense.value_begin<APFloat>();
    bool loses;
    number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
    return number.convertToDouble();
  }
  if (isa<IntegerType>(dense.getElementType()))
    return static_cast<double>((*dense.value_begin<APInt>()).getSExtValue());
  return std::nullopt;
}

bool isConstant(Value value) {
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<onnx::InitializerOp>(op) || nodeOf(value, "Constant");
}

/// The operand that `node` multiplies or divides by a scalar, or passes on; null for other nodes.
Value scaledOperand(onnx::NodeOp node) {
  if (!node || !node.getDomain().empty())
    return {};
  StringRef kind = node.getOpType();
  if ((kind == "Identity" || kind == "Cast") && node.getNumOperands() == 1)
    return node.getOperand(0);
  if ((kind != "Mul" && kind != "Div") || node.getNumOperands() != 2)
    return {};
  Value left = node.getOperand(0), right = node.getOperand(1);
  // Where both are scalars, as in the update of a parameter of one element, the constant is the factor.
  if (isScalar(right) && (!isScalar(left) || !isConstant(left) || kind == "Div"))
    return left;
  return kind == "Mul" && isScalar(left) ? right : Value();
}

/// `value` without its factors; `path` gets the nodes that were passed.
Value unscaled(Value value, SmallVectorImpl<Operation *> *path = nullptr) {
  for (unsigned i = 0; i < kLongestPath; ++i) {
    auto node = value.getDefiningOp<onnx::NodeOp>();
    Value next = scaledOperand(node);
    if (!next || next.getType() == NoneType::get(value.getContext()))
      return value;
    if (path)
      path->push_back(node);
    value = next;
  }
  return value;
}

class OptimizerNodes {
public:
  llvm::DenseMap<Operation *, StringRef> find(func::FuncOp main) {
    main.getBody().walk<WalkOrder::PreOrder>([&](onnx::NodeOp node) {
      if (isRoot(node))
        addRoot(node);
    });
    return std::move(pins);
  }

private:
  static bool isRoot(onnx::NodeOp node) {
    if (!node.getDomain().empty())
      return false;
    return node.getOpType() == "Sqrt" || (node.getOpType() == "Pow" && constantScalar(node.getOperand(1)) == 0.5);
  }

  /// A square, scaled or not, with the nodes from it to `value` in `path`.
  static bool isSquare(Value value, SmallVectorImpl<Operation *> &path) {
    for (unsigned i = 0; i < kLongestPath; ++i) {
      auto node = value.getDefiningOp<onnx::NodeOp>();
      if (!node)
        return false;
      path.push_back(node);
      if (node.getDomain().empty() && node.getOpType() == "Mul" && node.getNumOperands() == 2 &&
          unscaled(node.getOperand(0)) == unscaled(node.getOperand(1)))
        return true;
      if (node.getDomain().empty() && node.getOpType() == "Pow" && constantScalar(node.getOperand(1)) == 2.0)
        return true;
      value = scaledOperand(node);
      if (!value)
        return false;
    }
    return false;
  }

  /// A value that the graph keeps from step to step, scaled or not.
  bool isState(Value value, SmallVectorImpl<Operation *> &path) const {
    value = unscaled(value, &path);
    Operation *op = value.getDefiningOp();
    return !op || isa<onnx::InitializerOp>(op) || nodeOf(value, "ConstantOfShape") || sums.contains(op);
  }

  /// v * a + g^2 * b, or v + (g^2 - v) * b.
  bool isRunningSum(onnx::NodeOp node, SmallVectorImpl<Operation *> &path) const {
    if (!node || !node.getDomain().empty() || (node.getOpType() != "Add" && node.getOpType() != "Sum") ||
        node.getNumOperands() != 2)
      return false;
    for (unsigned i : {0u, 1u}) {
      Value state = node.getOperand(i), square = node.getOperand(1 - i);
      path.assign(1, node);
      if (!isState(state, path))
        continue;
      size_t mark = path.size();
      if (isSquare(square, path))
        return true;
      path.truncate(mark);
      auto difference = nodeOf(unscaled(square, &path), "Sub");
      if (difference && unscaled(difference.getOperand(1)) == unscaled(state)) {
        path.push_back(difference);
        if (isSquare(difference.getOperand(0), path))
          return true;
      }
    }
    return false;
  }

  /// Pins everything from the square under `root` to the divisions by it, if it is one of a running sum of squares.
  void addRoot(onnx::NodeOp root) {
    SmallVector<Operation *> above{root}, sum;
    SmallVector<Operation *> epsilons;
    Value value = root.getOperand(0);
    for (unsigned i = 0; i < kLongestPath; ++i) {
      value = unscaled(value, &above);
      auto node = value.getDefiningOp<onnx::NodeOp>();
      if (!node || !node.getDomain().empty())
        return;
      if (isRunningSum(node, sum)) {
        sums.insert(node);
        pin(sum, kSecondMoment);
        pin(above, kSecondMoment);
        pin(epsilons, kEpsilon);
        pinDivisions(root);
        return;
      }
      // Up past AMSGrad's maximum and an epsilon under the root.
      StringRef kind = node.getOpType();
      if ((kind != "Max" && kind != "Add") || node.getNumOperands() != 2)
        return;
      unsigned data = isScalar(node.getOperand(0)) || (kind == "Max" && !node.getOperand(0).getDefiningOp()) ? 1 : 0;
      (kind == "Add" ? epsilons : above).push_back(node);
      value = node.getOperand(data);
    }
  }

  /// Scalings, additions of scalars and the division behind a root.
  void pinDivisions(Operation *root) {
    SmallVector<Operation *> work{root};
    for (size_t i = 0; i < work.size() && i < kLongestPath; ++i)
      for (Operation *user : work[i]->getUsers()) {
        auto node = dyn_cast<onnx::NodeOp>(user);
        if (!node || !node.getDomain().empty() || node->getBlock() != root->getBlock() ||
            llvm::is_contained(work, user))
          continue;
        StringRef kind = node.getOpType();
        bool divides = kind == "Div" && node.getOperand(1) == work[i]->getResult(0);
        bool passes = scaledOperand(node) == work[i]->getResult(0) || kind == "Reciprocal" ||
                      ((kind == "Add" || kind == "Max" || kind == "Clip") &&
                       llvm::any_of(node.getInputs(), [](Value input) { return isScalar(input); }));
        bool multiplies =
            kind == "Mul" && work[i]->getNumResults() == 1 && cast<onnx::NodeOp>(work[i]).getOpType() == "Reciprocal";
        if (divides || passes || multiplies)
          pins.try_emplace(user, kEpsilon);
        if (passes && !divides)
          work.push_back(user);
      }
  }

  void pin(ArrayRef<Operation *> ops, const char *rule) {
    for (Operation *op : ops)
      pins.try_emplace(op, rule);
  }

  llvm::DenseMap<Operation *, StringRef> pins;
  DenseSet<Operation *> sums; ///< running sums found so far, which a later one may continue
};

} // namespace

llvm::DenseMap<Operation *, StringRef> mpt::optimizerPins(func::FuncOp main) { return OptimizerNodes().find(main); }
