// SPDX-License-Identifier: Apache-2.0
// Parameters that an exporter has merged because their first values were equal: which there are (Merged.cpp), the
// layers that each stands for (MergedLayers.cpp), and the names and tensors that these get (MergedNames.cpp).
#ifndef MPT_IMPORT_PROTO_MERGED_H
#define MPT_IMPORT_PROTO_MERGED_H

#include "OperandUses.h"
#include "Proto.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

#include <map>

namespace mpt::proto {

/// An operand that reads a tensor, directly or under the name that an Identity gives it, or a moved part of it.
struct MergedUse {
  ::onnx::NodeProto *node;
  int operand;
  std::string alias = {};
  std::string part = {};
};

/// A matrix or filter, and the node that multiplies by it.
struct Beside {
  std::string weight;
  const ::onnx::NodeProto *product = nullptr;
};

/// Gives each layer that shares a tensor with others, only because an exporter has merged them, one of its own.
class MergedTensors {
public:
  MergedTensors(::onnx::ModelProto &model, const ImportOptions &options, llvm::StringRef folder,
                DeclaredParameters &declared, mlir::Location loc)
      : model(model), graph(*model.mutable_graph()), options(options), folder(folder), loc(loc), operands(model),
        origins(foldedFrom(graph)), declared(declared), placeholders(exportedPlaceholders(graph)) {
    for (::onnx::TensorProto &tensor : *graph.mutable_initializer())
      tensors[tensor.name()] = &tensor;
    visitGraphs(graph, [&](::onnx::GraphProto &part) { look(part); });
    lookForMissing();
  }
  /// The tensors that were given, by the one that each was; fails for a --tie that matches nothing.
  llvm::FailureOr<SeparatedTensors> run();

private:
  using Layers = llvm::MapVector<llvm::StringRef, llvm::SmallVector<MergedUse>>;
  /// True where several modules read the tensor by one kind of layer. A table that is also a head is so on purpose.
  bool isShared(const ::onnx::TensorProto &tensor) { return !modulesOf(tensor).empty(); }
  static bool isWithin(llvm::StringRef inner, llvm::StringRef outer) { return inner == outer || isIn(inner, outer); }

  // ---- which tensors are merged

  /// Parameters of the exporter's module that have no tensor, in the order of the module.
  void lookForMissing();
  void look(::onnx::GraphProto &part);
  /// Elements of a small tensor; 0 of others.
  static int64_t countOf(const google::protobuf::RepeatedField<int64_t> &extents);
  /// Floats along one axis.
  static bool isVector(const ::onnx::TensorProto &tensor);
  /// One value everywhere, as a bias or scale begins with. Zeros may have either sign, as in filters that
  /// exporters have multiplied by a scale of zero.
  bool isSplat(const ::onnx::TensorProto &tensor) const;
  /// Who may train the tensor; nobody where its value is read in other ways than by nodes of the graph. Where exporters
  /// have kept the names of several parameters, each reader is one's. A module's parameter of one value may be read in
  /// parts: the exporter has merged the nodes that cut it as well.
  llvm::SmallVector<MergedUse> usesOf(const ::onnx::TensorProto &tensor);
  static bool isAlias(const ::onnx::NodeProto &node);
  /// The path of a parameter in a module.
  static bool isParameterName(llvm::StringRef name);
  /// True where the tensor and an alias of it are called like parameters.
  static bool hasNames(const ::onnx::TensorProto &tensor, llvm::ArrayRef<MergedUse> uses);
  static bool isNumber(const ::onnx::TensorProto &tensor);
  /// A scale that is one number, as in StarReLU: constants of formulas are many, and their names are the exporter's.
  /// Where it says the module's parameters, each module that lacks one reads its own.
  bool isNamedNumber(const ::onnx::TensorProto &tensor);
  /// True for tensors of one value that are no layer's weight: biases, scales, tokens and views of these.
  bool isBesideLayers(const ::onnx::TensorProto &tensor);
  void noteShared(const ::onnx::TensorProto &tensor);

  // ---- layers that a tensor stands for

  /// By the exporter's declaration.
  bool isOfModule(const ::onnx::TensorProto &tensor) const;
  /// True for cuts of an FP32 vector into vectors of lengths that the file says.
  bool cuts(const MergedUse &use) const;
  int64_t lengthOf(llvm::StringRef value) const;
  /// Uses by layer: of one matrix first, which a module may have under two names, then by the names of parameters.
  Layers layersOf(const ::onnx::TensorProto &tensor);
  /// A module that lacks fewer parameters than it has uses applies one of them several times.
  void tieBeyondModule(const ::onnx::TensorProto &tensor, llvm::ArrayRef<MergedUse> uses,
                       llvm::MutableArrayRef<std::string> keys) const;
  /// Layers that were one another's copies, as in torch.nn.TransformerEncoder, by a feature that tells them apart: a
  /// name of their own, which the exporter has kept as an alias, or their number in a list of modules. A tensor that
  /// was one in the module has neither. Matrices and filters of one value, as behind a norm whose scale begins
  /// with zeros, are equal by their first values: each module has its own.
  Layers clonesOf(const ::onnx::TensorProto &tensor);
  /// The name under which a layer reads its bias; empty where that is not the name of a parameter.
  std::string biasBeside(const MergedUse &use) const;
  /// True of one module that is applied several times: an exporter that writes an alias for each tensor that it has
  /// merged would have written one for a second module's bias.
  bool haveOneBias(llvm::ArrayRef<MergedUse> uses) const;
  bool isElsewhere(llvm::StringRef name, llvm::ArrayRef<MergedUse> uses) const;
  std::string modulesOf(const ::onnx::TensorProto &tensor);
  /// A larger tensor that the node reads beside operand `but`: a matrix or filter.
  std::string weightOf(const ::onnx::NodeProto &node, int but) const;
  std::string originOf(std::string name) const;
  /// The matrix that a bias or scale goes with: of a layer in the same module, perhaps behind views, other biases and
  /// other scales.
  Beside besideOf(const MergedUse &use) const;
  /// The operand that a view shows, or that a vector is added to or multiplied with; empty for other nodes.
  std::string throughOf(const ::onnx::NodeProto &node) const;
  /// Uses by one kind of node in one module of the exporter's, or behind two products with one matrix, are one layer
  /// that is applied twice: they share the tensor. Others have their own, and so have the operands of one node and uses
  /// behind one product.
  std::string layerOf(size_t index, llvm::ArrayRef<MergedUse> uses, llvm::ArrayRef<Beside> besides) const;
  /// The path of the module that a node comes from, as torch's exporters say it; empty where none does.
  std::string scopeOf(const ::onnx::NodeProto &node) const;

  // ---- names and tensors of their own

  /// True where a node comes from a module of that path.
  bool knowsScope(const std::string &scope) const;
  /// Parameters that a merged tensor may be in a module, in their order: the missing ones, and the one that it is
  /// called after. With `deep` parameters of modules inside it as well.
  std::vector<std::string> namesIn(llvm::StringRef scope, llvm::StringRef merged, bool deep = false) const;
  /// The parameter that a use is of by the exporter's own word; empty where it says none. Of the operation that several
  /// nodes stand for, weights and scales come before biases.
  std::string argumentOf(const MergedUse &use) const;
  /// The parameter of the exporter's module that a use is of, which the merged tensor may be with `own`.
  std::string exportedName(const MergedUse &use, llvm::StringRef merged, bool own) const;
  /// The name of the layer's own tensor: the exporter's, or else as frameworks form it beside the layer's weight or
  /// after its module.
  std::string nameFor(llvm::StringRef layer, const MergedUse &use, llvm::StringRef merged, bool own) const;
  /// A copy's own tensor is called as the first one's, in its module.
  std::string cloneName(const MergedUse &use, llvm::StringRef merged, llvm::StringRef home,
                        llvm::StringRef layer) const;
  static bool isIn(llvm::StringRef name, llvm::StringRef scope);
  void separate(::onnx::TensorProto &tensor, Layers &layers, bool clones);
  /// The uses, of one layer, get a tensor of that name.
  void giveOwn(const ::onnx::TensorProto &tensor, llvm::ArrayRef<MergedUse> uses, std::string name);
  /// A vector with the one value of another.
  ::onnx::TensorProto partOf(const ::onnx::TensorProto &tensor, int64_t length) const;
  /// Aliases whose readers have tensors of their own, under the alias' name. Other readers of one read the merged one.
  void dropAliases();

  ::onnx::ModelProto &model;
  ::onnx::GraphProto &graph;
  const ImportOptions &options;
  llvm::StringRef folder;
  mlir::Location loc;
  mutable OperandUses operands;
  llvm::StringMap<std::vector<std::string>> origins;
  DeclaredParameters &declared;
  llvm::StringMap<::onnx::TensorProto *> tensors;
  llvm::StringMap<const ::onnx::ValueInfoProto *> types;
  llvm::StringMap<size_t> places;            ///< of the exporter's parameters
  llvm::StringMap<std::string> placeholders; ///< these parameters, by their names as arguments
  std::map<size_t, std::string> missing;     ///< parameters that have no tensor, by place
  llvm::StringMap<::onnx::NodeProto *> producers;
  llvm::StringMap<llvm::SmallVector<MergedUse>> readers;
  TakenNames taken;
  llvm::StringSet<> names, dropped;
  llvm::StringSet<> fixed; ///< results of graphs
  mutable llvm::StringSet<> scopes;
  llvm::SmallVector<std::pair<std::string, std::string>>
      shared;         ///< tensors that stay one, with the modules that read them
  int64_t cloned = 0; ///< bytes of copies
  SeparatedTensors separated;
};

} // namespace mpt::proto

#endif // MPT_IMPORT_PROTO_MERGED_H
