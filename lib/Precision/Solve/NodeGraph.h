// SPDX-License-Identifier: Apache-2.0
// A file's graph of ONNX nodes, with its subgraphs, as the solver sees it.
#ifndef MPT_LIB_PRECISION_SOLVE_NODEGRAPH_H
#define MPT_LIB_PRECISION_SOLVE_NODEGRAPH_H

#include "GraphView.h"

#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Precision/Meaning.h"
#include "mpt/Precision/MeasuredTypes.h"
#include "mpt/Precision/Solve.h"

namespace mpt {

class NodeGraph final : public GraphView {
public:
  NodeGraph(mlir::func::FuncOp main, const Policy &policy, const CostModel &cost)
      : GraphView(policy), main(main), cost(cost), measured(policy) {}

  llvm::SmallVector<mlir::func::FuncOp> functions() const override { return {main}; }
  void enter(mlir::func::FuncOp function) override;
  void forEachOp(llvm::function_ref<void(mlir::Operation *)> visit) const override;
  RangeTransfer transferOf(mlir::OpResult result) const override;
  /// Arguments of bodies are ranged: an earlier iteration may have made them.
  RangeFact entryOf(mlir::BlockArgument argument) const override;
  mlir::Value resultOfEnd(mlir::OpOperand &end) const override;
  bool isDecidable(mlir::Type type) const override { return onnx::isFloat32Tensor(type); }
  ValueCost costOf(mlir::Value value) const override;
  std::optional<OpLabels> label(mlir::Operation *op, RangeFact in, CastPlacement &placement) override;
  CutWeights weights() const override;

private:
  /// The rules on a node before anything flows; the text of the ruling is the context's.
  struct NodeRules {
    mlir::StringAttr rule;
    NumericClass numericClass = NumericClass::Pinned;
    Decision decision = Decision::follow;
    bool named = false, takesNarrow = true;

    Ruling ruling() const { return {decision, rule.str(), named}; }
  };

  void findTail(mlir::Block &block);
  bool isTailUser(mlir::Operation *user) const;
  bool sumsBeyondPrecision(onnx::NodeOp node, NumericClass numericClass) const;

  OpLabels labelNode(onnx::NodeOp node, const NodeRules &rules, RangeFact in, CastPlacement &placement);
  Label mainLabel(onnx::NodeOp node, const NodeRules &rules, RangeFact in, std::string &rule, CastPlacement &placement);
  std::string whyWideByRule(onnx::NodeOp node, const NodeRules &rules);
  std::string whyFollowerIsWide(onnx::NodeOp node, const NodeRules &rules, RangeFact in, bool knowsRange);
  void produce(mlir::Value value, Label label, CastPlacement &placement) const;
  void use(mlir::Operation *op, llvm::ArrayRef<Label> labels, CastPlacement &placement) const;

  mlir::func::FuncOp main;
  CostModel cost;
  MeasuredNodes measured;
  llvm::DenseMap<mlir::Operation *, NodeRules> rules;
  llvm::DenseSet<mlir::Operation *> tail;
  llvm::DenseMap<mlir::Operation *, std::string> kept;     ///< nodes that their operands or results keep wide
  llvm::DenseMap<mlir::Operation *, llvm::StringRef> pins; ///< nodes of optimizers that no policy narrows
};

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_NODEGRAPH_H
