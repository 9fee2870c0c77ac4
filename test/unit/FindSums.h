// SPDX-License-Identifier: Apache-2.0
// Which ops sum, by results: in the conformance cases, some result changes with two elements of one float operand.
#ifndef MPT_TEST_UNIT_FINDSUMS_H
#define MPT_TEST_UNIT_FINDSUMS_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Evaluation/Frame.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <random>
#include <set>

namespace mpt::test {

/// Looks at every op while a function runs in FP64.
class SumFinder : public InterpreterObserver {
public:
  /// Names of ops whose results are made of several elements of an operand.
  std::set<std::string> sums;

  void look(mlir::ModuleOp module) {
    for (auto function : module.getOps<mlir::func::FuncOp>()) {
      EvaluationState state;
      InterpreterFrame frame(EvaluationMode::Oracle, state, this);
      std::mt19937_64 random(11);
      for (mlir::BlockArgument argument : function.getArguments())
        frame.set(argument, filled(function, argument, random));
      (void)frame.run(function.getBody().front());
    }
  }

  void computed(mlir::Operation *op, const InterpreterFrame &frame) override {
    std::string name = op->getName().getStringRef().str();
    if (op->getNumRegions() != 0 || !llvm::isa<Interpretable>(op) || sums.count(name))
      return;
    for (mlir::Value operand : op->getOperands())
      if (const Tensor &tensor = frame.get(operand); tensor.isFloat() && tensor.size() > 1 && tensor.size() <= 512)
        if (meet(op, operand, frame)) {
          sums.insert(name);
          return;
        }
  }

private:
  /// Values in the range that the argument's check attributes give.
  static Tensor filled(mlir::func::FuncOp function, mlir::BlockArgument argument, std::mt19937_64 &random) {
    auto bound = [&](llvm::StringRef name, double otherwise) {
      auto value = function.getArgAttrOfType<mlir::FloatAttr>(argument.getArgNumber(), name);
      return value ? value.getValueAsDouble() : otherwise;
    };
    Tensor tensor = InterpreterFrame::zeros(argument);
    double low = bound("check.low", tensor.isFloat() ? -2 : 0), high = bound("check.high", 2);
    std::uniform_real_distribution<double> between(low, high);
    for (int64_t i = 0; i < tensor.size(); ++i)
      tensor.setNumber(i, tensor.isFloat() ? between(random) : std::floor(between(random)));
    return tensor;
  }

  /// Whether two elements of `operand` change one and the same element of a result.
  bool meet(mlir::Operation *op, mlir::Value operand, const InterpreterFrame &frame) {
    const Tensor &own = frame.get(operand);
    std::vector<std::vector<int>> changes;
    for (mlir::Value result : op->getResults())
      changes.emplace_back(frame.get(result).size(), 0);
    for (int64_t j = 0; j < own.size(); ++j) {
      Tensor moved = own;
      moved.setNumber(j, own.number(j) * (1 + 1e-4) + 1e-7);
      InterpreterFrame inner(frame, EvaluationMode::Oracle);
      inner.set(operand, std::move(moved));
      if (mlir::failed(llvm::cast<Interpretable>(op).interpret(inner)))
        return false;
      for (auto [result, counts] : llvm::zip_equal(op->getResults(), changes)) {
        const Tensor &before = frame.get(result), &after = inner.get(result);
        for (int64_t i = 0; before.isFloat() && i < before.size(); ++i)
          if (before.number(i) != after.number(i) && ++counts[i] > 1)
            return true;
      }
    }
    return false;
  }
};

} // namespace mpt::test

#endif // MPT_TEST_UNIT_FINDSUMS_H
