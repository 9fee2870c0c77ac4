// SPDX-License-Identifier: Apache-2.0
// The view of an import rule on one ONNX node, and the versioned table of rules.
#ifndef MPT_LIB_IMPORT_BINDER_H
#define MPT_LIB_IMPORT_BINDER_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Interfaces/Arithmetic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <limits>
#include <optional>

namespace mpt {

class Converter;

/// One node while its rule runs: operands as core values, attributes with defaults, results to set. Its failures carry
/// the node's location and op type.
class Binder : public GraphBuilder {
public:
  Binder(onnx::NodeOp node, Converter &converter, mlir::OpBuilder &builder)
      : GraphBuilder(builder, node.getLoc()), node(node), converter(converter) {}

  int64_t version() { return node.getVersion(); }
  llvm::StringRef opType() { return node.getOpType(); }

  // ---- operands
  unsigned operandCount() { return node.getInputs().size(); }
  /// True when operand `i` is given.
  bool has(unsigned i);
  /// Operand `i` as a core value; only call for operands that are given (`need` checks).
  mlir::Value in(unsigned i);
  /// Operand `i` as the node names it: a sequence, say.
  mlir::Value named(unsigned i);
  llvm::ArrayRef<int64_t> shape(unsigned i) { return tensorType(in(i)).getShape(); }
  int64_t rank(unsigned i) { return tensorType(in(i)).getRank(); }
  mlir::Type element(unsigned i) { return tensorType(in(i)).getElementType(); }
  bool isFloat(unsigned i) { return llvm::isa<mlir::FloatType>(element(i)); }
  /// Fails where operand `i` is given and is no tensor.
  llvm::LogicalResult checkTensor(unsigned i);
  /// Fails unless the first `count` operands are given, and are tensors.
  llvm::LogicalResult need(unsigned count);
  /// The same, and fails unless they are floats and the first has at least `leastRank` dimensions.
  llvm::LogicalResult needFloat(unsigned count, int64_t leastRank);
  /// The values of a constant operand; null when it is computed at run time.
  mlir::ElementsAttr given(unsigned i);
  /// The same for operands that must not be computed at run time: where they follow from tensors that train, they have
  /// their values before the first step, and a warning says so.
  mlir::ElementsAttr required(unsigned i);
  /// A constant integer operand; fails when it is computed at run time.
  llvm::FailureOr<llvm::SmallVector<int64_t>> ints(unsigned i, llvm::StringRef what);
  /// The only value of a constant float or integer operand.
  llvm::FailureOr<double> number(unsigned i, llvm::StringRef what);

  // ---- attributes
  mlir::Attribute attr(llvm::StringRef name);
  /// States that these attributes, where given, cannot change the ops that the rule builds.
  void ignore(std::initializer_list<llvm::StringRef> names);
  int64_t intAttr(llvm::StringRef name, int64_t otherwise);
  /// Defaults too are the FP32 numbers that the operator's text means.
  double floatAttr(llvm::StringRef name, double otherwise);
  llvm::StringRef stringAttr(llvm::StringRef name, llvm::StringRef otherwise);
  llvm::SmallVector<int64_t> intsAttr(llvm::StringRef name, llvm::ArrayRef<int64_t> otherwise = {});
  /// An axis in [-rank, rank) made non-negative.
  llvm::FailureOr<int64_t> axis(int64_t value, int64_t rank);
  llvm::FailureOr<llvm::SmallVector<int64_t>> axes(llvm::ArrayRef<int64_t> values, int64_t rank);
  /// The dtype attribute `name` as an element type; `otherwise` when absent.
  llvm::FailureOr<mlir::Type> typeAttr(llvm::StringRef name, mlir::Type otherwise);

  // ---- results
  unsigned resultCount() { return node.getNumResults(); }
  bool wants(unsigned i) { return i < node.getNumResults() && !node.getResult(i).use_empty(); }
  llvm::LogicalResult set(unsigned i, mlir::Value value);
  llvm::LogicalResult done(mlir::Value value) { return set(0, value); }

  /// Fails where the node says more than the rule asked for: an operand, an attribute that is not its default, a
  /// result that is used and was not set.
  llvm::LogicalResult checkAllWasRead();

  mlir::InFlightDiagnostic fail();
  mlir::InFlightDiagnostic warn();

  // ---- helpers over several families
  mlir::FloatAttr f64(double value) { return builder.getF64FloatAttr(value); }
  mlir::IntegerAttr i64(int64_t value) { return builder.getI64IntegerAttr(value); }
  mlir::DenseI64ArrayAttr list(llvm::ArrayRef<int64_t> values) { return builder.getDenseI64ArrayAttr(values); }
  /// Fails for negative extents and for more than `mostElements`.
  llvm::LogicalResult checkShape(llvm::ArrayRef<int64_t> shape);
  /// Largest kernel extent, stride, dilation and padding of windows.
  static constexpr int64_t mostWindow = 1 << 24;
  /// Fails unless `values`, called `name`, are `rank` numbers from 1 to `mostWindow`.
  llvm::LogicalResult checkWindow(llvm::StringRef name, llvm::ArrayRef<int64_t> values, size_t rank);
  /// Fails unless there are two pads an axis, none larger than `mostWindow` nor, unless they may crop, negative.
  llvm::LogicalResult checkPads(llvm::ArrayRef<int64_t> pads, size_t rank, bool cropping);
  /// Fails unless `indices` may name elements of `x` along `axis`: one rank, and nowhere else a larger extent.
  llvm::LogicalResult checkElementIndices(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> indices, int64_t axis);
  /// The distance of the last of `extent` samples, `stride` apart, from the first; fails beyond 2^40.
  llvm::FailureOr<int64_t> spread(int64_t extent, int64_t stride);
  /// NumPy broadcast shape of two shapes; fails with a message.
  llvm::FailureOr<llvm::SmallVector<int64_t>> broadcastShape(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b);
  /// Both values broadcast to their common shape.
  llvm::FailureOr<std::pair<mlir::Value, mlir::Value>> broadcastPair(mlir::Value a, mlir::Value b);
  /// Operand `i` broadcast to the shape of `like`, null where it is absent; fails where it does not fit.
  llvm::FailureOr<mlir::Value> optionalLike(unsigned i, mlir::Value like);
  /// `x` plus operand `i` where that is given.
  llvm::FailureOr<mlir::Value> plusOptional(mlir::Value x, unsigned i);
  /// Values of a constant, as integers (floats truncate).
  static llvm::SmallVector<int64_t> intsOf(mlir::ElementsAttr values);
  /// The (seed, step) value of the module's generator state, made at the first call, and a stream number of its own.
  std::pair<mlir::Value, int64_t> generator();

  onnx::NodeOp node;
  Converter &converter;

private:
  llvm::StringSet<> attributesRead;
  llvm::SmallDenseSet<unsigned> operandsRead;
};

/// How a node becomes core ops.
struct Rule {
  using Import = llvm::LogicalResult (*)(Binder &);
  Rule(Import import = nullptr) : import(import) {}
  llvm::LogicalResult operator()(Binder &b) const;

  Import import;
  unsigned operands = 0;            ///< that must be given and be tensors
  std::optional<int64_t> leastRank; ///< of the first; they are floats then
};
/// A rule over at least this many tensors.
inline Rule takes(unsigned operands, Rule rule) {
  rule.operands = operands;
  return rule;
}
/// The same, where they are floats and the first has at least `leastRank` dimensions.
inline Rule takesFloats(unsigned operands, int64_t leastRank, Rule rule) {
  rule.leastRank = leastRank;
  return takes(operands, rule);
}

/// The properties of an operator's nodes for reduced precision: their numeric class, the same for all or by a node's
/// attributes and operands, and the kind of arithmetic that they do, by which meanings flow. GEMMs contract, and
/// movements move the elements of operand 0, unless the entry says otherwise.
struct NodeClass {
  NodeClass(NumericClass same) : same(same), arithmetic(usual(same)) {}
  NodeClass(NumericClass same, Arithmetic arithmetic) : same(same), arithmetic(arithmetic) {}
  NodeClass(NumericClass (*byNode)(onnx::NodeOp), Arithmetic arithmetic = Arithmetic::Unknown)
      : byNode(byNode), arithmetic(arithmetic) {}
  NumericClass of(onnx::NodeOp node) const { return byNode ? byNode(node) : same; }
  /// These operands are trained: weights, with the biases and scales beside them.
  NodeClass trains(std::initializer_list<unsigned> operands) const {
    NodeClass result = *this;
    for (unsigned operand : operands)
      result.weights |= uint64_t(1) << operand;
    return result;
  }
  /// Any operand may be one, or a constant of arithmetic: use alone does not tell.
  NodeClass mayTrain() const {
    NodeClass result = *this;
    result.mixes = true;
    return result;
  }

  NumericClass same = NumericClass::Pinned;
  NumericClass (*byNode)(onnx::NodeOp) = nullptr;
  Arithmetic arithmetic = Arithmetic::Unknown;
  uint64_t weights = 0; ///< bit i: operand i
  bool mixes = false;

private:
  static Arithmetic usual(NumericClass of) {
    return of == NumericClass::Contraction ? Arithmetic::Contracts
           : of == NumericClass::Movement  ? Arithmetic::Moves
                                           : Arithmetic::Unknown;
  }
};

/// One operator: how its nodes become core ops, and how reduced precision affects them.
struct OperatorEntry {
  llvm::SmallVector<std::pair<int64_t, Rule>, 2> rules; ///< with the version from which each holds
  std::optional<NodeClass> numericClass;
  llvm::StringRef whyNoRule;  ///< for operators that are rewritten in the file and not imported
  int64_t standardBefore = 0; ///< ONNX Runtime writes it into ai.onnx, whose versions below this one have no such
};

/// Operators by domain and op type.
class RuleTable {
public:
  static const RuleTable &get();
  /// The newest rule whose version is not above `version`.
  Rule find(llvm::StringRef domain, llvm::StringRef opType, int64_t version) const;
  bool contains(llvm::StringRef domain, llvm::StringRef opType) const;
  /// In order.
  std::vector<llvm::StringRef> names() const;
  /// Null for operators without an entry.
  const OperatorEntry *entry(llvm::StringRef domain, llvm::StringRef opType) const;
  /// Advice to the user of an operator without a rule.
  std::string advice(llvm::StringRef domain, llvm::StringRef opType) const;

  /// ai.onnx ops. `since` is the operator-set version from which the rule holds; the class holds in all versions.
  void on(llvm::StringRef opType, int64_t since, Rule rule, NodeClass numericClass);
  void on(std::initializer_list<llvm::StringRef> opTypes, int64_t since, Rule rule, NodeClass numericClass) {
    for (llvm::StringRef opType : opTypes)
      on(opType, since, rule, numericClass);
  }
  /// Ops of another domain.
  void onDomain(llvm::StringRef domain, llvm::StringRef opType, Rule rule, NodeClass numericClass);
  /// ai.onnx ops that node by node rewriting narrows and import refuses, or expands by their ONNX function; `why` is
  /// for the user whose model was refused.
  void noRule(llvm::StringRef opType, NodeClass numericClass, llvm::StringRef why);
  /// The operator of com.microsoft is written as one of ai.onnx too, before `version` of it.
  void standardToo(llvm::StringRef opType, int64_t version = std::numeric_limits<int64_t>::max());
  /// A domain of which nothing is imported, and an alternative for the user.
  void noDomain(llvm::StringRef domain, llvm::StringRef instead) { domains[domain] = instead; }

private:
  llvm::StringMap<OperatorEntry> entries;
  llvm::StringMap<llvm::StringRef> domains; ///< alternatives to the operators of these
};

// One function a family file.
void addAttentionRules(RuleTable &table);
void addCastRules(RuleTable &table);
void addControlRules(RuleTable &table);
void addConvRules(RuleTable &table);
void addElementwiseRules(RuleTable &table);
void addGatherRules(RuleTable &table);
void addLossRules(RuleTable &table);
void addMatMulRules(RuleTable &table);
void addNormRules(RuleTable &table);
void addPoolRules(RuleTable &table);
void addRandomRules(RuleTable &table);
void addRecurrentRules(RuleTable &table);
void addReduceRules(RuleTable &table);
void addResizeRules(RuleTable &table);
void addScatterRules(RuleTable &table);
void addSequenceRules(RuleTable &table);
void addShapeRules(RuleTable &table);

} // namespace mpt

#endif // MPT_LIB_IMPORT_BINDER_H
