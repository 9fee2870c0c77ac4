// SPDX-License-Identifier: Apache-2.0
// A precision policy in memory: loaded from a policy file, asked for the decision on one op.
#ifndef MPT_PRECISION_POLICY_H
#define MPT_PRECISION_POLICY_H

#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Precision/Layers.h"
#include "mpt/Precision/Measured.h"
#include "mpt/Precision/Settings.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Regex.h"
#include <array>
#include <memory>

namespace mpt {

using policy::Decision;

/// The decision of a rule, and which rule it was.
struct Ruling {
  Decision decision = Decision::follow;
  std::string rule;
  /// Decided for this op or node by name: its operands and results obey, not only its internals.
  bool named = false;
};

/// "NAME,measure=FILE": a policy whose 8-bit operands are chosen by measured times.
struct PolicyName {
  std::string name;      ///< of the policy, with its other settings
  bool measures = false; ///< the word `measure` was there
  std::string table;     ///< of measured products (Products.h); may be missing

  static PolicyName of(llvm::StringRef text);
};

struct ProductTable;

/// Which policy, and the rules and ranges that the command line adds to it.
struct PolicyWishes {
  /// A built-in policy, the path of a policy file (anything with a dot or slash), or "auto" with settings (Measured.h),
  /// and perhaps ",measure=FILE".
  std::string name;
  std::vector<std::string> keepF32, keepNarrow; ///< expressions over node names that become wide or narrow
  std::vector<std::string> rules;               ///< rules as in a policy file, without `policy.`
  std::string ranges; ///< file of mpt-run --calibrate: types under policy auto, limits under others
  std::string saved;  ///< f8 or storage: of activations of all nodes, before `rules`
};

class Policy : public PrecisionSettings {
public:
  /// Errors are reported at `loc`, or within the policy file.
  static mlir::FailureOr<Policy> load(const PolicyWishes &wishes, mlir::Location loc);

  /// `layers` tells which rules on layers apply; null where there are none.
  Ruling decide(mlir::Operation *op, NumericClass numericClass, const Layers *layers = nullptr) const;
  /// The ruling on operand `index` of `op` in particular, if a rule names it.
  std::optional<Ruling> decideOperand(mlir::Operation *op, unsigned index) const;

  /// Fails where a rule of the command line names no op or node of the module.
  mlir::LogicalResult checkRules(mlir::ModuleOp module) const;

  /// The measurements, where ranges were given; null otherwise.
  const Measurements *measured() const { return measurements.get(); }
  /// Measured times of contractions, with ",measure=FILE"; null otherwise.
  const ProductTable *times() const { return timed.get(); }

private:
  /// A rule on ops or nodes by name.
  struct NamedRule {
    Decision decision;
    std::string text;
    std::optional<int64_t> operand;
    bool fromCommandLine = false;
    mlir::DictionaryAttr with;          ///< attributes that the op has
    std::shared_ptr<llvm::Regex> regex; ///< of the node's name; null for rules on ops
    std::string name;                   ///< of the op, or the expression's text
  };

  mlir::LogicalResult loadFile(llvm::StringRef nameOrPath, mlir::Location loc);
  mlir::LogicalResult addRules(mlir::Block &rules, bool fromCommandLine);
  mlir::LogicalResult addOpRule(policy::OpRuleOp rule, bool fromCommandLine);
  mlir::LogicalResult addNodeRule(llvm::StringRef regex, std::optional<int64_t> operand, Decision decision,
                                  llvm::StringRef source, bool fromCommandLine, mlir::Location loc);
  mlir::LogicalResult addTextRule(llvm::StringRef text, mlir::Location loc);
  mlir::LogicalResult readProducts(llvm::StringRef path, mlir::Location loc);
  const NamedRule *find(mlir::Operation *op, std::optional<int64_t> operand) const;

  std::array<Decision, 6> classes{};
  llvm::SmallVector<std::pair<policy::Predicate, Decision>> layerRules;
  llvm::StringMap<std::vector<NamedRule>> ops;
  std::vector<NamedRule> nodes;
  std::vector<NamedRule> asked; ///< rules on saved activations from the command line, to be checked
  bool hasOperandRules = false;
  std::shared_ptr<const Measurements> measurements;
  std::shared_ptr<const ProductTable> timed;
};

/// The name that op rules know an op by: its own, or onnx.<operator> for a node of a file.
std::string ruleName(mlir::Operation *op);

} // namespace mpt

#endif // MPT_PRECISION_POLICY_H
