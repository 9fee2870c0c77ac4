// SPDX-License-Identifier: Apache-2.0
// The solver's view of a graph. Two graphs have one: a module of core ops, and a file's ONNX nodes.
#ifndef MPT_LIB_PRECISION_SOLVE_GRAPHVIEW_H
#define MPT_LIB_PRECISION_SOLVE_GRAPHVIEW_H

#include "CastPlacement.h"
#include "RangeFlow.h"

#include "mpt/Precision/Policy.h"

namespace mpt {

class GraphView {
public:
  virtual ~GraphView() = default;

  // ---- walking
  virtual llvm::SmallVector<mlir::func::FuncOp> functions() const = 0;
  /// Finds the rules on `function`'s ops before anything flows. The methods below speak of this function.
  virtual void enter(mlir::func::FuncOp function) = 0;
  /// Definitions come before uses, the ops of a body behind the op that holds it.
  virtual void forEachOp(llvm::function_ref<void(mlir::Operation *)> visit) const = 0;

  // ---- the forward analysis
  virtual RangeTransfer transferOf(mlir::OpResult result) const = 0;
  /// The known range of an argument of the function or of a body.
  virtual RangeFact entryOf(mlir::BlockArgument argument) const { return {}; }
  /// The result of the op around a body that an operand at the body's end becomes; null for other operands.
  virtual mlir::Value resultOfEnd(mlir::OpOperand &end) const { return {}; }

  // ---- deciding
  /// True for types that a policy decides about.
  virtual bool isDecidable(mlir::Type type) const = 0;
  /// The traffic of a cast of `value`.
  virtual ValueCost costOf(mlir::Value value) const = 0;
  /// Labels `op`, into which `in` flows, and enters its operands and results into `placement`. Nothing for ops that are
  /// not reported.
  virtual std::optional<OpLabels> label(mlir::Operation *op, RangeFact in, CastPlacement &placement) = 0;

  virtual CutWeights weights() const = 0;
  /// The words that reports add to the rule of an op with free labels.
  virtual llvm::StringRef howItWasPlaced() const { return ""; }

protected:
  mlir::StringAttr text(const llvm::Twine &rule) const {
    return mlir::StringAttr::get(policy.storage.getContext(), rule);
  }
  explicit GraphView(const Policy &policy) : policy(policy) {}

  const Policy &policy;
};

// ---- grounds on which both views keep an op of one type wide

/// Why the facts that flow into an op that follows its neighbours keep it wide; empty where it may be narrow.
/// `knowsRange`: it was measured to fit.
llvm::StringRef whyFlowKeepsWide(NumericClass numericClass, RangeFact in, bool knowsRange);
/// The rule of an op that no policy narrows because of `why`: says so where the policy asks for it by name.
std::string pinnedRule(llvm::StringRef why, const Ruling &ruling);
/// True where `ruling` would narrow an op or a node by its name.
inline bool asksForNarrow(const Ruling &ruling) { return ruling.named && ruling.decision == Decision::narrow; }

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_GRAPHVIEW_H
