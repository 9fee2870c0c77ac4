// SPDX-License-Identifier: Apache-2.0
// The roles of a joint graph's results, as passes of this stage need them.
#include "mpt/Autodiff/JointGraph.h"

#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;

func::FuncOp mpt::jointGraph(ModuleOp module) {
  auto training = module->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
  auto gradients = training ? training.getAs<DictionaryAttr>("gradients") : DictionaryAttr();
  auto next = training ? training.getAs<DictionaryAttr>("next") : DictionaryAttr();
  bool updates = next && llvm::any_of(next, [&](NamedAttribute entry) {
                   auto state =
                       module.lookupSymbol<train::StateOp>(cast<FlatSymbolRefAttr>(entry.getValue()).getAttr());
                   return state && state.getRole() == train::Role::parameter;
                 });
  return updates || (gradients && !gradients.empty()) ? findFunction(module, "forward") : func::FuncOp();
}

bool mpt::usesBackwardOfFile(ModuleOp module) {
  auto training = module->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
  auto backward = training ? training.getAs<StringAttr>("backward") : StringAttr();
  return training && !(backward && backward.getValue() == "derived");
}

DenseSet<Operation *> mpt::forwardOps(func::FuncOp function) {
  auto training = function->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
  auto has = [&](StringRef kind, StringRef name) {
    auto map = training.getAs<DictionaryAttr>(kind);
    return map && map.contains(name);
  };
  SmallVector<Value> work;
  for (const NamedValue &result : namedResults(function))
    if (!has("gradients", result.name) && !has("next", result.name))
      work.push_back(result.value);
  DenseSet<Operation *> ops;
  while (!work.empty())
    if (Operation *op = work.pop_back_val().getDefiningOp(); op && ops.insert(op).second)
      llvm::append_range(work, op->getOperands());
  return ops;
}

SmallVector<std::pair<Value, FlatSymbolRefAttr>> mpt::newValues(func::FuncOp function) {
  auto training = function->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
  auto next = training ? training.getAs<DictionaryAttr>("next") : DictionaryAttr();
  SmallVector<std::pair<Value, FlatSymbolRefAttr>> found;
  for (const NamedValue &result : namedResults(function))
    if (auto state = next ? next.getAs<FlatSymbolRefAttr>(result.name) : FlatSymbolRefAttr())
      found.emplace_back(result.value, state);
  return found;
}
