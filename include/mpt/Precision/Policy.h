// A precision policy in memory: loaded from a policy file, asked for the decision on one op.
#ifndef MPT_PRECISION_POLICY_H
#define MPT_PRECISION_POLICY_H

#include "mpt/Dialect/Policy/PolicyDialect.h"
#include "mpt/Interfaces/Interfaces.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Regex.h"
#include <array>
#include <memory>

namespace mpt {

using policy::Decision;
using policy::Scaling;

/// Parameters of train.update_scale, and whether there is a scale at all.
struct LossScaling {
  Scaling mode = Scaling::none;
  double init = 65536.0, growth = 2.0, backoff = 0.5, min = 1.0, max = 16777216.0;
  int64_t interval = 2000, hysteresis = 1;

  /// Replaces what `text` names: none, a positive number (a fixed scale), or dynamic with any of init, growth, backoff,
  /// interval, hysteresis, min and max, as in "dynamic,init=1024,interval=500". Returns what was wrong, or nothing.
  std::string override(llvm::StringRef text);
};

/// What a rule decided, and which rule it was.
struct Ruling {
  Decision decision = Decision::follow;
  std::string rule;
  /// Decided for this op or node by name: its operands and results obey, not only its internals.
  bool named = false;
};

class Policy {
public:
  /// The built-in policy `nameOrPath`, or the one in that file (anything with a dot or slash). Errors are reported at
  /// `loc`, or within the file.
  static mlir::FailureOr<Policy> load(llvm::StringRef nameOrPath, mlir::Location loc);

  /// Ops from nodes whose whole name matches `regex` get `decision`, after all rules of the file. Later calls win.
  mlir::LogicalResult addNodeRule(llvm::StringRef regex, Decision decision, llvm::StringRef source, mlir::Location loc);

  Ruling decide(mlir::Operation *op, NumericClass numericClass) const;
  /// False for policies that store everything in FP32.
  bool narrows() const { return !storage.isF32(); }
  /// Summary that precision-assign leaves on the module for the passes after it (`mpt.policy`).
  mlir::DictionaryAttr toAttribute() const;

  std::string name;
  mlir::Type storage, accumulate, master, gradients;
  LossScaling scaling;

private:
  struct NodeRule {
    std::shared_ptr<llvm::Regex> regex;
    Decision decision;
    std::string text;
  };
  std::array<Decision, 6> classes{};
  llvm::StringMap<Decision> ops;
  std::vector<NodeRule> nodes;
};

/// Names of the built-in policies.
std::vector<llvm::StringRef> builtinPolicies();
/// Loss scaling of a module that went through precision-assign; none without its summary.
LossScaling scalingOf(mlir::ModuleOp module);
/// Type of narrow values of such a module; null without its summary.
mlir::Type storageOf(mlir::ModuleOp module);
/// Type of running sums of such a module; null without its summary.
mlir::Type accumulatorOf(mlir::ModuleOp module);
/// The name that op rules know an op by: its own, or onnx.<operator> for a node of a file.
std::string ruleName(mlir::Operation *op);

} // namespace mpt

#endif // MPT_PRECISION_POLICY_H
