// SPDX-License-Identifier: Apache-2.0
// precision-products: functions that compute each product that may have 8-bit operands, to be timed.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/Decisions.h"
#include "mpt/Precision/OperandCasts.h"
#include "mpt/Precision/Products.h"

#include "mlir/IR/IRMapping.h"

namespace mpt {
#define GEN_PASS_DEF_PRODUCTS
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// A function while it is built: operands come in as arguments, and all that it makes is returned, so that all is made.
class Timed {
public:
  Timed(ModuleOp module, StringRef name, Location loc)
      : builder(OpBuilder::atBlockEnd(module.getBody())),
        function(func::FuncOp::create(builder, loc, name, builder.getFunctionType({}, {}))), b(builder, loc) {
    builder.setInsertionPointToStart(function.addEntryBlock());
    setAttr<MPTDialect::LossyCastsAttrHelper>(function, builder.getI64IntegerAttr(0));
  }

  Value argument(RankedTensorType type) {
    unsigned number = function.getNumArguments();
    (void)function.insertArgument(number, type, DictionaryAttr(), b.loc);
    setArgAttr<MPTDialect::NameAttrHelper>(function, number, builder.getStringAttr("operand_" + Twine(number)));
    return function.getArgument(number);
  }

  void result(Value value, const Twine &name) {
    results.push_back(value);
    names.push_back(builder.getStringAttr(name));
  }

  void finish() {
    func::ReturnOp::create(builder, b.loc, results);
    function.setFunctionType(builder.getFunctionType(function.getArgumentTypes(), ValueRange(results).getTypes()));
    for (auto [i, name] : llvm::enumerate(names))
      setResultAttr<MPTDialect::NameAttrHelper>(function, i, name);
  }

  OpBuilder builder;
  func::FuncOp function;
  GraphBuilder b;

private:
  SmallVector<Value> results;
  SmallVector<StringAttr> names;
};

class Products : public mpt::impl::ProductsBase<Products> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    settings = PrecisionSettings::of(module);
    if (!settings.quantizes()) {
      module.emitError() << "expected a policy with 8-bit operands of GEMMs, whose products can be measured, got "
                         << settings.name;
      return signalPassFailure();
    }
    SmallVector<Operation *> before;
    for (Operation &op : *module.getBody())
      before.push_back(&op);
    find();
    if (products.empty()) {
      module.emitError() << "expected GEMMs with 8-bit operands, found none: policy " << settings.name
                         << " keeps all of this model's in " << settings.storage;
      return signalPassFailure();
    }
    casts.emplace(module);
    Builder b(&getContext());
    SmallVector<Attribute> productRows, conversionRows;
    for (auto [i, found] : llvm::enumerate(products)) {
      auto &[op, product, count] = found.second;
      std::string name = "product_" + std::to_string(i);
      makeWide(name + "_16", op, product);
      makeNarrow(name + "_8", op, product);
      productRows.push_back(b.getDictionaryAttr({b.getNamedAttr("product", b.getStringAttr(product.key)),
                                                 b.getNamedAttr("function_16", b.getStringAttr(name + "_16")),
                                                 b.getNamedAttr("function_8", b.getStringAttr(name + "_8")),
                                                 b.getNamedAttr("operations", b.getF64FloatAttr(product.operations)),
                                                 b.getNamedAttr("ops", b.getI64IntegerAttr(count))}));
    }
    for (auto [i, found] : llvm::enumerate(conversions)) {
      std::string name = "conversion_" + std::to_string(i);
      makeConversion(name, found.second);
      conversionRows.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("conversion", found.first), b.getNamedAttr("function", b.getStringAttr(name))}));
    }
    numProducts += products.size();
    numConversions += conversions.size();
    // Functions first: they read states.
    for (bool functions : {true, false})
      for (Operation *&op : before)
        if (op && isa<func::FuncOp>(op) == functions) {
          op->erase();
          op = nullptr;
        }
    setAttr<MPTDialect::ManifestAttrHelper>(
        module,
        b.getDictionaryAttr({b.getNamedAttr(
            "measures", b.getDictionaryAttr({b.getNamedAttr("recipe", b.getStringAttr(recipeOf(settings))),
                                             b.getNamedAttr("products", b.getArrayAttr(productRows)),
                                             b.getNamedAttr("conversions", b.getArrayAttr(conversionRows))}))}));
  }

private:
  struct Found {
    Operation *op;
    Product product;
    int64_t count; ///< ops
  };

  /// Training functions decide, and others about products that no training function has (ProductChoice.h).
  void find() {
    ValueKeys keys(getOperation());
    SmallVector<func::FuncOp> training, others;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        (function.getOps<train::WriteOp>().empty() ? others : training).push_back(function);
    DenseSet<StringAttr> trained;
    for (bool trains : {true, false})
      for (func::FuncOp function : trains ? training : others) {
        TrainingParts parts(function);
        for (Operation &op : function.getBody().front()) {
          OpTypes types = decisionOf(&op);
          if (!types.quantized)
            continue;
          StringAttr key = nameInModel(&op, keys);
          if (trains)
            trained.insert(key);
          if (trains || !trained.contains(key))
            add(&op, Product(&op, types, settings, parts));
        }
      }
  }

  void add(Operation *op, Product product) {
    for (const ProductOperand &operand : product.operands)
      if (operand.narrow)
        conversions.insert({StringAttr::get(&getContext(), conversionKey(operand)), operand});
    auto key = StringAttr::get(&getContext(), product.key);
    ++products.insert({key, Found{op, std::move(product), 0}}).first->second.count;
  }

  /// The product's op on `operands`, with results in their decided types.
  Operation *makeProduct(Timed &timed, Operation *op, const Product &product, const IRMapping &operands) {
    IRMapping mapping = operands;
    Operation *made = timed.builder.clone(*op, mapping);
    removeAttr<MPTDialect::PrecisionAttrHelper>(made);
    made->getResult(0).setType(product.result);
    return made;
  }

  void makeWide(StringRef name, Operation *op, const Product &product) {
    Timed timed(getOperation(), name, op->getLoc());
    IRMapping mapping;
    for (const ProductOperand &operand : product.operands)
      if (Value value = op->getOperand(operand.number); !mapping.contains(value))
        mapping.map(value, timed.argument(operand.stored));
    for (auto [i, result] : llvm::enumerate(makeProduct(timed, op, product, mapping)->getResults()))
      timed.result(result, "result_" + Twine(i));
    timed.finish();
  }

  void makeNarrow(StringRef name, Operation *op, const Product &product) {
    Timed timed(getOperation(), name, op->getLoc());
    IRMapping mapping;
    SmallVector<Value, 2> scales;
    llvm::SmallDenseMap<Value, Value> scaleOf;
    for (const ProductOperand &operand : product.operands) {
      Value value = op->getOperand(operand.number);
      if (!mapping.contains(value)) {
        Value given = timed.argument(operand.stored);
        mapping.map(value, operand.narrow ? convert(timed, given, operand, scaleOf[value]) : given);
      }
      if (Value scale = scaleOf.lookup(value))
        scales.push_back(scale);
    }
    Operation *made = makeProduct(timed, op, product, mapping);
    for (auto [i, result] : llvm::enumerate(made->getResults()))
      timed.result(result, "result_" + Twine(i));
    timed.finish();
    if (!scales.empty())
      takeScalesOut(made, scales, *casts);
  }

  /// As precision-quantize converts: the scale's magnitude is computed too, and returned where nothing else reads it.
  Value convert(Timed &timed, Value x, const ProductOperand &operand, Value &scale) {
    GraphBuilder &b = timed.b;
    if (settings.tensorScaling.enabled) {
      Value top = largestMagnitude(b, x);
      if (settings.tensorScaling.delayed) {
        scale = b.reshape(readScales(timed), {});
        timed.result(top, "amax_" + Twine(cast<BlockArgument>(x).getArgNumber()));
      } else {
        scale = tensorScale(b, top, b.splatLike(top, 1), operand.narrow, settings.tensorScaling);
      }
    }
    return toNarrowOperand(b, *casts, x, scale, operand.narrow, modeOf(operand));
  }

  /// The same where the 8-bit value is returned: with a factor of no name, since no result may carry a scale.
  void makeConversion(StringRef name, const ProductOperand &operand) {
    Timed timed(getOperation(), name, NameLoc::get(StringAttr::get(&getContext(), name)));
    GraphBuilder &b = timed.b;
    Value x = timed.argument(operand.stored), factor;
    if (settings.tensorScaling.enabled) {
      Value top = largestMagnitude(b, x);
      if (settings.tensorScaling.delayed) {
        factor = timed.argument(RankedTensorType::get({}, timed.builder.getF32Type()));
        timed.result(top, "amax");
      } else {
        factor = b.div(b.splatLike(top, 1), top);
      }
    }
    timed.result(toNarrowOperand(b, *casts, x, factor, operand.narrow, modeOf(operand)), "converted");
    timed.finish();
  }

  RoundingMode modeOf(const ProductOperand &operand) const {
    return operand.isGradient ? settings.gradientCasts : settings.operands;
  }

  /// A scale as a step has it: one number of a state.
  Value readScales(Timed &timed) {
    constexpr StringLiteral kScales = train::TrainDialect::kTensorScales;
    auto type = RankedTensorType::get({1}, timed.builder.getF32Type());
    if (!scales) {
      auto top = OpBuilder::atBlockBegin(getOperation().getBody());
      Location loc = NameLoc::get(top.getStringAttr(kScales));
      scales = train::StateOp::create(top, loc, kScales, type, train::Role::statistic, StringAttr(),
                                      DenseElementsAttr::get(type, 1.0f), /*frozen=*/false, StringAttr());
    }
    return train::ReadOp::create(timed.builder, timed.b.loc, type, kScales);
  }

  PrecisionSettings settings;
  std::optional<RoundingCasts> casts;
  llvm::MapVector<StringAttr, Found> products;
  llvm::MapVector<StringAttr, ProductOperand> conversions;
  train::StateOp scales;
};
} // namespace
