// Builds an ONNX graph node by node, and the table of export rules.
#ifndef MPT_LIB_EXPORT_WRITER_H
#define MPT_LIB_EXPORT_WRITER_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringSet.h"
#include <functional>
#include <string>

namespace mpt {

/// Name of a value in the ONNX graph.
using OnnxValue = std::string;

/// ONNX's number for an element type; 0 where it has none.
int onnxElementType(mlir::Type type);

/// An attribute of a node.
struct OnnxAttribute {
  OnnxAttribute(llvm::StringRef name, int64_t value);
  OnnxAttribute(llvm::StringRef name, double value);
  OnnxAttribute(llvm::StringRef name, llvm::StringRef value);
  OnnxAttribute(llvm::StringRef name, llvm::ArrayRef<int64_t> values);
  ::ONNX_NAMESPACE::AttributeProto proto;
};

/// Appends nodes to a graph while one core op is exported.
class OnnxWriter {
public:
  explicit OnnxWriter(::ONNX_NAMESPACE::GraphProto &graph) : graph(graph) {}

  OnnxValue get(mlir::Value value) const { return names.lookup(value); }
  void set(mlir::Value value, OnnxValue name) { names[value] = std::move(name); }
  /// A name not used so far, derived from `hint`.
  std::string unique(llvm::StringRef hint);
  /// Nodes made from now on are named after `loc`.
  void startOp(mlir::Location loc);

  OnnxValue node(llvm::StringRef type, llvm::ArrayRef<OnnxValue> inputs, llvm::ArrayRef<OnnxAttribute> attributes = {});
  llvm::SmallVector<OnnxValue> nodeWith(llvm::StringRef type, llvm::ArrayRef<OnnxValue> inputs, size_t results,
                                        llvm::ArrayRef<OnnxAttribute> attributes = {});
  OnnxValue initializer(mlir::ElementsAttr value, llvm::StringRef name);
  /// An i64 vector.
  OnnxValue indices(llvm::ArrayRef<int64_t> values);
  /// A scalar of `type`.
  OnnxValue scalar(mlir::Type type, double value);
  OnnxValue cast(OnnxValue x, mlir::Type from, mlir::Type to);
  OnnxValue reshape(OnnxValue x, llvm::ArrayRef<int64_t> shape) { return node("Reshape", {x, indices(shape)}); }
  OnnxValue transpose(OnnxValue x, llvm::ArrayRef<int64_t> permutation);

private:
  ::ONNX_NAMESPACE::GraphProto &graph;
  llvm::DenseMap<mlir::Value, OnnxValue> names;
  llvm::StringSet<> used;
  std::string prefix;
};

/// Results of a rule.
using Values = llvm::SmallVector<OnnxValue>;

inline mlir::Type elementOf(mlir::Value value) { return tensorType(value).getElementType(); }
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return tensorType(value).getShape(); }

/// Export of one op: reads operands and sets results through the writer.
using ExportRule = std::function<llvm::LogicalResult(mlir::Operation *, OnnxWriter &)>;
using ExportRules = llvm::StringMap<ExportRule>;

/// Adds the rule of `Op`; `body` returns the names of its results.
template <typename Op>
void addRule(ExportRules &rules, std::function<llvm::SmallVector<OnnxValue>(Op, OnnxWriter &)> body) {
  rules[Op::getOperationName()] = [body](mlir::Operation *op, OnnxWriter &w) {
    llvm::SmallVector<OnnxValue> results = body(llvm::cast<Op>(op), w);
    if (results.size() != op->getNumResults())
      return llvm::failure();
    for (auto [result, name] : llvm::zip_equal(op->getResults(), results))
      w.set(result, name);
    return llvm::success();
  };
}

void addElementwiseRules(ExportRules &rules);
void addShapeRules(ExportRules &rules);
void addContractionRules(ExportRules &rules);
void addPoolingRules(ExportRules &rules);
void addReduceRules(ExportRules &rules);
void addNormRules(ExportRules &rules);

} // namespace mpt

#endif // MPT_LIB_EXPORT_WRITER_H
