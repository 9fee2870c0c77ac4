// A precision policy in memory: loaded from a policy file, asked for the decision on one op.
#ifndef MPT_PRECISION_POLICY_H
#define MPT_PRECISION_POLICY_H

#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Precision/Layers.h"
#include "mpt/Precision/Settings.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Regex.h"
#include <array>
#include <memory>

namespace mpt {

using policy::Decision;

/// What a rule decided, and which rule it was.
struct Ruling {
  Decision decision = Decision::follow;
  std::string rule;
  /// Decided for this op or node by name: its operands and results obey, not only its internals.
  bool named = false;
};

class Policy : public PrecisionSettings {
public:
  /// The built-in policy `nameOrPath`, or the one in that file (anything with a dot or slash). Errors are reported at
  /// `loc`, or within the file.
  static mlir::FailureOr<Policy> load(llvm::StringRef nameOrPath, mlir::Location loc);

  /// The same with node rules after those of the file: `keepF32` is wide, `keepNarrow` narrow.
  static mlir::FailureOr<Policy> load(llvm::StringRef nameOrPath, llvm::ArrayRef<std::string> keepF32,
                                      llvm::ArrayRef<std::string> keepNarrow, mlir::Location loc);

  /// Ops from nodes whose whole name matches `regex` get `decision`, after all rules of the file. Later calls win.
  mlir::LogicalResult addNodeRule(llvm::StringRef regex, Decision decision, llvm::StringRef source, mlir::Location loc);

  /// `layers` tells which rules on layers apply; null where there are none.
  Ruling decide(mlir::Operation *op, NumericClass numericClass, const Layers *layers = nullptr) const;

private:
  struct NodeRule {
    std::shared_ptr<llvm::Regex> regex;
    Decision decision;
    std::string text;
  };
  std::array<Decision, 6> classes{};
  llvm::SmallVector<std::pair<policy::Predicate, Decision>> layerRules;
  llvm::StringMap<Decision> ops;
  std::vector<NodeRule> nodes;
};

/// Names of the built-in policies.
std::vector<llvm::StringRef> builtinPolicies();
/// The name that op rules know an op by: its own, or onnx.<operator> for a node of a file.
std::string ruleName(mlir::Operation *op);

} // namespace mpt

#endif // MPT_PRECISION_POLICY_H
