// SPDX-License-Identifier: Apache-2.0
// A module of core and train ops, as the solver sees it.
#ifndef MPT_LIB_PRECISION_SOLVE_COREGRAPH_H
#define MPT_LIB_PRECISION_SOLVE_COREGRAPH_H

#include "Budget.h"
#include "GraphView.h"

#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Precision/Meaning.h"
#include "mpt/Precision/MeasuredTypes.h"
#include "mpt/Precision/Solve.h"

namespace mpt {

/// All functions of a module. Parameters that they share have one label each.
class CoreGraph final : public GraphView {
public:
  /// `reader`, and `kept` if given, have to outlive the graph.
  CoreGraph(mlir::ModuleOp module, const Policy &policy, const CostModel &cost, ConstantReader &reader,
            const KeptOps *kept = nullptr);

  llvm::SmallVector<mlir::func::FuncOp> functions() const override;
  void enter(mlir::func::FuncOp function) override;
  void forEachOp(llvm::function_ref<void(mlir::Operation *)> visit) const override;
  RangeTransfer transferOf(mlir::OpResult result) const override { return at.transfers.lookup(result); }
  bool isDecidable(mlir::Type type) const override;
  ValueCost costOf(mlir::Value value) const override;
  std::optional<OpLabels> label(mlir::Operation *op, RangeFact in, CastPlacement &placement) override;
  CutWeights weights() const override;
  llvm::StringRef howItWasPlaced() const override { return "; fewest cast bytes"; }

  /// The stored types of parameters under `narrow`.
  void reportStates(const Labelling &narrow, StateDecided decided) const;

private:
  /// How the labels of an op's operands and results depend on each other.
  enum class Form {
    fixed,    ///< all have one label that no rule changes
    stored,   ///< reads a parameter: all have that one's label
    source,   ///< made of no float: 0 and 1 are exact in every type
    flexible, ///< results may have another type than operands
    uniform   ///< one type for all
  };
  /// The rules on an op before anything flows.
  struct OpRules {
    Form form = Form::fixed;
    Label label = kWide; ///< of form fixed
    NumericClass numericClass = NumericClass::Pinned;
    Ruling ruling;
    bool quantizes = false;
    bool isKept = false; ///< wide for the meaning of its operands
  };
  struct Parameter {
    train::StateOp state;
    Label label = kEither;
    bool isWritten = false;
  };
  /// Of one function.
  struct FunctionFacts {
    mlir::func::FuncOp function;
    llvm::DenseMap<mlir::Operation *, OpRules> rules;
    llvm::DenseMap<mlir::Value, RangeTransfer> transfers; ///< none for values that are not in it
    llvm::DenseSet<mlir::Operation *> loss, gradientTail, updateTail;
    std::optional<Meanings> meanings;
    std::optional<TrainingParts> parts;
    llvm::DenseMap<mlir::Value, std::string>
        outOfRange; ///< read, and moved or not, of a state that the type cannot hold
  };

  void findParameters();
  /// The policy has no say.
  static OpRules withoutPolicy(std::string rule, Label label = kWide, Form form = Form::fixed);
  OpRules rulesOf(mlir::Operation *op, const Layers &layers);
  OpRules rulesOfRead(train::ReadOp read);
  OpRules rulesOfCore(mlir::Operation *op, PrecisionSemantics semantics, const Layers &layers);
  Meanings::Contents contentsOf(mlir::Operation *op) const;
  std::string whyMeaningKeepsWide(mlir::Operation *op, const Ruling &ruling) const;
  std::optional<std::string> whyOutOfRange(mlir::Operation *op, NumericClass numericClass, const Ruling &ruling);
  std::optional<Ruling> operandRuling(mlir::Operation *op) const;
  void setTransfers(mlir::Operation *op, const OpRules &rules);
  RangeTransfer uniformTransfer(mlir::Operation *op, const OpRules &rules) const;
  bool isOpenResult(mlir::OpResult result, const OpRules &rules) const;

  struct Draft;
  static Draft labelAll(mlir::Operation *op, Label label, llvm::StringRef rule);
  Draft labelSource(mlir::Operation *op, const OpRules &rules, CastPlacement &placement) const;
  Draft labelFlexible(mlir::Operation *op, const OpRules &rules, CastPlacement &placement) const;
  Draft labelUniform(mlir::Operation *op, const OpRules &rules, RangeFact in, CastPlacement &placement) const;
  void labelOperands(const OpRules &rules, Label all, Draft &draft) const;
  void restrictToMeasured(const OpRules &rules, Draft &draft) const;
  void restrictToKept(Draft &draft) const;
  Label parameterLabel(train::ReadOp read, CastPlacement &placement);
  Label freeLabel(mlir::TypeRange results, CastPlacement &placement) const;
  static Label contractionLabel(const OpRules &rules, CastPlacement &placement);
  bool waitsForUpdate(mlir::OpResult result, const OpRules &rules) const;
  void enterValues(const OpLabels &labels, CastPlacement &placement) const;

  mlir::ModuleOp module;
  CostModel cost;
  std::optional<MeasuredTypes> measured;
  ConstantReader &reader;
  const KeptOps *kept;                             ///< by the error budget and by measured times
  llvm::DenseMap<mlir::StringAttr, double> beyond; ///< states that the storage type does not hold
  llvm::MapVector<mlir::StringAttr, Parameter> parameters;
  llvm::DenseSet<mlir::StringAttr> written; ///< states
  FunctionFacts at;
};

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_COREGRAPH_H
