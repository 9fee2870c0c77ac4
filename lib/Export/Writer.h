// SPDX-License-Identifier: Apache-2.0
// Builds an ONNX graph node by node, and the table of export rules.
#ifndef MPT_LIB_EXPORT_WRITER_H
#define MPT_LIB_EXPORT_WRITER_H

#include "ModelFile.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringSet.h"
#include <functional>
#include <map>
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

/// Shared by the graphs of one model: names, tensors, functions. Values of tensors stay where they are.
struct OnnxModelParts {
  struct Tensor {
    ::ONNX_NAMESPACE::TensorProto proto; ///< everything but the elements
    TensorPayload payload;
  };
  std::vector<Tensor> tensors;
  llvm::StringSet<> names;
  llvm::DenseMap<mlir::Attribute, OnnxValue> constants;
  /// Element types (of onnx.proto) by value.
  llvm::StringMap<int> kinds;
  /// Arithmetic on bf16 happens in wider types between casts.
  bool widens = false;
  /// Floats are f32 and f16 alone.
  bool portable = false;
  /// Model-local functions of standard ops, by name.
  std::map<std::string, ::ONNX_NAMESPACE::FunctionProto> functions;
};

/// Appends nodes to a graph while one core op is exported.
class OnnxWriter {
public:
  OnnxWriter(::ONNX_NAMESPACE::GraphProto &graph, OnnxModelParts &parts) : graph(graph), parts(parts) {}

  OnnxValue get(mlir::Value value) const { return names.lookup(value); }
  void set(mlir::Value value, OnnxValue name) { names[value] = std::move(name); }
  /// A name not used so far, derived from `hint`.
  std::string unique(llvm::StringRef hint);
  /// Tells the element type of a value that no node makes.
  void declare(llvm::StringRef name, mlir::Type type) { parts.kinds[name] = onnxElementType(type); }
  /// Whether a value is written without its repeated elements: readers broadcast it.
  bool isImplicit(mlir::Value value) const { return implicit.contains(value); }
  llvm::DenseSet<mlir::Value> implicit;
  /// Whether arithmetic on `value` happens in a wider type.
  bool isWidened(mlir::Value value) const;
  /// The type of arithmetic whose result is rounded once more, to the type of a result: FP64, or FP32 in portable
  /// files, where an FP32 result is off by some units in the last place.
  mlir::FloatType innerType() const;
  bool isPortable() const { return parts.portable; }
  /// Nodes made from now on are named after `loc`.
  void startOp(mlir::Location loc);

  OnnxValue node(llvm::StringRef type, llvm::ArrayRef<OnnxValue> inputs, llvm::ArrayRef<OnnxAttribute> attributes = {});
  llvm::SmallVector<OnnxValue> nodeWith(llvm::StringRef type, llvm::ArrayRef<OnnxValue> inputs, size_t results,
                                        llvm::ArrayRef<OnnxAttribute> attributes = {});
  /// A call of a function of the model, which `define` adds the first time.
  OnnxValue call(llvm::StringRef function, llvm::ArrayRef<OnnxValue> inputs,
                 llvm::function_ref<void(::ONNX_NAMESPACE::FunctionProto &)> define);
  /// A tensor of its own, in another float type where `element` says so (f16 or bf16 of f32).
  OnnxValue initializer(mlir::ElementsAttr value, llvm::StringRef name, mlir::Type element = {});
  /// A tensor that equal ones share.
  OnnxValue constant(mlir::ElementsAttr value, llvm::StringRef name);
  /// An i64 vector.
  OnnxValue indices(llvm::ArrayRef<int64_t> values);
  /// A scalar of `type`.
  OnnxValue scalar(mlir::Type type, double value);
  OnnxValue integer(int64_t value);
  OnnxValue cast(const OnnxValue &x, mlir::Type from, mlir::Type to);
  /// `value` cast to another element type.
  OnnxValue getAs(mlir::Value value, mlir::Type type);
  /// Indices in the type that the operators on tuples take, i64.
  OnnxValue indicesOf(mlir::Value value);
  OnnxValue reshape(const OnnxValue &x, llvm::ArrayRef<int64_t> shape) { return node("Reshape", {x, indices(shape)}); }
  OnnxValue transpose(const OnnxValue &x, llvm::ArrayRef<int64_t> permutation);

  mlir::MLIRContext *context = nullptr;

private:
  llvm::SmallVector<OnnxValue> append(llvm::StringRef type, llvm::ArrayRef<OnnxValue> inputs, size_t results,
                                      llvm::ArrayRef<OnnxAttribute> attributes, llvm::StringRef domain = "");

  /// Results of the nodes that there are, by all but their names.
  llvm::StringMap<llvm::SmallVector<OnnxValue>> known;
  ::ONNX_NAMESPACE::GraphProto &graph;
  OnnxModelParts &parts;
  llvm::DenseMap<mlir::Value, OnnxValue> names;
  std::string prefix = "value";
};

/// Arithmetic on values of one type, in infix form.
class Arithmetic {
public:
  Arithmetic(OnnxWriter &w, mlir::Type type) : w(w), type(type) {}
  OnnxValue number(double value) { return w.scalar(type, value); }
  OnnxValue add(const OnnxValue &a, const OnnxValue &b) { return w.node("Add", {a, b}); }
  OnnxValue sub(const OnnxValue &a, const OnnxValue &b) { return w.node("Sub", {a, b}); }
  OnnxValue mul(const OnnxValue &a, const OnnxValue &b) { return w.node("Mul", {a, b}); }
  OnnxValue div(const OnnxValue &a, const OnnxValue &b) { return w.node("Div", {a, b}); }
  OnnxValue mul(const OnnxValue &a, double b) { return mul(a, number(b)); }
  OnnxValue in(mlir::Value value);
  OnnxValue out(const OnnxValue &value, mlir::Value like);

  OnnxWriter &w;
  mlir::Type type;
};

/// Results of a rule.
using Values = llvm::SmallVector<OnnxValue>;

inline mlir::Type elementOf(mlir::Value value) { return tensorType(value).getElementType(); }
inline llvm::ArrayRef<int64_t> shapeOf(mlir::Value value) { return tensorType(value).getShape(); }
/// The wider of the element types of a contraction's operand and result.
mlir::Type widerType(mlir::Value operand, mlir::Value result);
/// Pads of a window as ONNX lists them: all low ones, then all high ones.
llvm::SmallVector<int64_t> bothPads(llvm::ArrayRef<int64_t> low, llvm::ArrayRef<int64_t> high);

/// Export of one op: reads operands and sets results through the writer.
using ExportRule = std::function<llvm::LogicalResult(mlir::Operation *, OnnxWriter &)>;
using ExportRules = llvm::StringMap<ExportRule>;

/// Adds the rule of `Op`; `body` returns the names of its results.
template <typename Op>
void addRule(ExportRules &rules, const std::function<llvm::SmallVector<OnnxValue>(Op, OnnxWriter &)> &body) {
  rules[Op::getOperationName()] = [body](mlir::Operation *op, OnnxWriter &w) {
    llvm::SmallVector<OnnxValue> results = body(llvm::cast<Op>(op), w);
    if (results.size() != op->getNumResults())
      return llvm::failure();
    for (auto [result, name] : llvm::zip_equal(op->getResults(), results))
      w.set(result, name);
    return llvm::success();
  };
}

// One function a family, in the family's file.
void addCastRules(ExportRules &rules);
void addConvRules(ExportRules &rules);
void addElementwiseRules(ExportRules &rules);
void addGatherRules(ExportRules &rules);
void addMatMulRules(ExportRules &rules);
void addNormRules(ExportRules &rules);
void addPoolRules(ExportRules &rules);
void addRandomRules(ExportRules &rules);
void addReduceRules(ExportRules &rules);
void addResizeRules(ExportRules &rules);
void addScatterRules(ExportRules &rules);
void addShapeRules(ExportRules &rules);

} // namespace mpt

#endif // MPT_LIB_EXPORT_WRITER_H
