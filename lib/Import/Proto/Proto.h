// SPDX-License-Identifier: Apache-2.0
// The protobuf side of the importer: loading and checking a model, tensors to attributes.
#ifndef MPT_LIB_IMPORT_PROTO_PROTO_H
#define MPT_LIB_IMPORT_PROTO_PROTO_H

#include "JointRoles.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"
#include "mpt/Import/TrainingForm.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringSet.h"

#include <optional>

namespace mpt::proto {

/// Of ai.onnx: older ones are read where all nodes mean the same in it.
constexpr int64_t oldestOpset = 7;

/// A location that names `name`.
mlir::Location namedLoc(mlir::MLIRContext *context, llvm::StringRef name);

/// The name by which diagnostics speak of a node: its own, else its first output's, else its op type.
llvm::StringRef nodeName(const ::onnx::NodeProto &node);

/// True for elements that may train: IEEE's floating-point types and BF16.
bool isFloat(const ::onnx::TensorProto &tensor);

/// Parses binary protobuf, or text when it begins with '<' or '#'. Sparse initializers become dense ones.
llvm::LogicalResult parseModel(llvm::StringRef bytes, ::onnx::ModelProto &model, mlir::Location loc);

/// Versions, names, order, the ONNX checker, inlining of local functions, symbolic dimensions, shape inference.
/// Initializers of more than a few elements are moved out to `initializers`. `isPart`: bindings without effect may have
/// one in another part of the file.
llvm::LogicalResult prepareModel(::onnx::ModelProto &model, std::vector<::onnx::TensorProto> &initializers,
                                 const ImportOptions &options, mlir::Location loc, bool isPart = false);
/// The same, but symbolic extents, ops without an import rule and declared types stay.
llvm::LogicalResult prepareNodes(::onnx::ModelProto &model, std::vector<::onnx::TensorProto> &initializers,
                                 mlir::Location loc);

/// Sparse initializers, also of subgraphs and of training information, become dense ones: within a small
/// multiple of their bytes.
llvm::LogicalResult densifyInitializers(::onnx::ModelProto &model, mlir::MLIRContext *context);
/// The same of the attribute sparse_value of Constant nodes.
llvm::LogicalResult densifyConstants(::onnx::ModelProto &model, mlir::MLIRContext *context);

/// Fails for text whose brackets nest deeper than a recursive parser has a stack for.
llvm::LogicalResult checkTextDepth(llvm::StringRef text, mlir::Location loc);

/// Fails for functions that call themselves or multiply beyond bounds, and for equations that inference loops on.
llvm::LogicalResult checkLimits(::onnx::ModelProto &model, mlir::MLIRContext *context);

/// Puts nodes in an order in which each value is made before it is read, with a remark; fails where a graph has a
/// cycle.
llvm::LogicalResult sortNodes(::onnx::ModelProto &model, mlir::Location loc);

/// Operators that the model's version of ai.onnx does not have: the ones that ONNX Runtime writes there become ones of
/// com.microsoft, and others are refused. In a graph that goes back into a file all of them stay (domainOfVersion in
/// mpt/Dialect/ONNX/Schemas.h), others with a warning.
llvm::LogicalResult settleUnregistered(::onnx::ModelProto &model, bool isRewritten, mlir::MLIRContext *context);

/// Puts local functions in the place of their calls. Their meaning by an operator set of their own is kept; functions
/// that a graph of one set cannot express stay where it goes back into a file, with a warning.
llvm::LogicalResult inlineFunctions(::onnx::ModelProto &model, bool isRewritten, mlir::Location loc);

/// Takes the domains that settleUnregistered() and inlineFunctions() gave nodes out of functions that stay, and out of
/// the operator sets.
void forgetVersions(::onnx::ModelProto &model);

/// Some exporters write -1 for an extent that they do not know.
void forgetNegativeExtents(::onnx::GraphProto &graph);
/// Replaces the symbols of the inputs' shapes by numbers: the user's, and the extents of initializers among the inputs.
llvm::LogicalResult bindDimensions(::onnx::GraphProto &graph, llvm::ArrayRef<::onnx::TensorProto> initializers,
                                   const ImportOptions &options, bool isPart, mlir::MLIRContext *context);

/// Strict inference of every value's type, in place; ONNX's own message where the graph contradicts itself.
std::optional<std::string> inferShapes(::onnx::ModelProto &model);

/// Turns values of types that core does not compute in into bytes, in place of which nodes of `storageDomain` decode
/// and encode (lib/Import/StorageTypes.h). Types are inferred already.
llvm::LogicalResult lowerStorageTypes(::onnx::ModelProto &model, mlir::MLIRContext *context);

/// The shortest text that reads as `value`.
std::string numberText(float value);

/// The text of a message of the ONNX library: one line, without the library's tags, files and conditions.
std::string plainMessage(llvm::StringRef what);
/// Fails with the library's message that `check` returns, at the node that it is about: "expected a valid model: ...".
llvm::LogicalResult checkByLibrary(::onnx::ModelProto &model, llvm::StringRef expected, mlir::MLIRContext *context,
                                   llvm::function_ref<std::optional<std::string>()> check);

/// Fails unless the element type is supported, the extents fit, and data in the message itself are as many as these
/// say.
llvm::LogicalResult checkTensor(const ::onnx::TensorProto &tensor, mlir::Location loc);

/// Bytes that the elements of a tensor of this type and these extents take in raw form; checks both, not the data.
llvm::FailureOr<int64_t> byteSize(const ::onnx::TensorProto &tensor, mlir::Location loc);
/// The elements of a checked tensor inside the file in raw form.
std::string rawBytes(const ::onnx::TensorProto &tensor, mlir::MLIRContext *context);

/// Version of the operator set of `domain` that the model imports, 0 if it does not.
int64_t opsetVersion(const ::onnx::ModelProto &model, llvm::StringRef domain);

/// The element type of an ONNX data type; null for strings, complex and unknown numbers.
mlir::Type elementType(mlir::MLIRContext *context, int32_t dataType);

/// The MLIR type of a value; tensor<*xT> where the shape is unknown. Symbols of extents become the type's encoding when
/// they are to be kept.
mlir::Type valueType(mlir::MLIRContext *context, const ::onnx::TypeProto &type, bool keepsSymbols = false);

/// External tensors of this many bytes are mapped, smaller ones read.
inline constexpr uint64_t mappedBytes = 65536;

/// The content of a tensor. External data is mapped from `folder`; large raw data moves into a blob (`tensor` loses
/// it).
llvm::FailureOr<mlir::ElementsAttr> tensorAttr(::onnx::TensorProto &tensor, llvm::StringRef folder, mlir::Location loc);

/// Zeros of the tensor's type, whose memory does not depend on its extents.
llvm::FailureOr<mlir::ElementsAttr> zerosAttr(const ::onnx::TensorProto &tensor, mlir::Location loc);

/// A tensor that a training step changes, or that training has a role for.
struct StepState {
  std::string name, of;
  train::Role role = train::Role::parameter;
  bool frozen = false;
};

/// The states and updates of a file that is a training step; empty for other files.
struct StepInfo {
  llvm::StringMap<StepState> states;    ///< by initializer
  llvm::StringMap<std::string> updates; ///< state whose new value an output is, by output
  llvm::StringSet<> renewed;            ///< initializers of any type that the outputs of a joint graph change
  llvm::StringSet<> zeros;              ///< initializers without elements, which start at zero
};

/// The declarations of torch.export's ONNX exporter in metadata of values: of each tensor of the module its kind there,
/// of others that its optimizer has folded them.
DeclaredParameters declaredParameters(const ::onnx::GraphProto &graph);

/// Gives batch normalizations initializers of their own for running statistics that are merged with something else:
/// with the statistics of another one that moves them, or with scales and biases. Exporters merge tensors that are
/// equal, as new ones are. They are named after the scale.
void separateStatistics(::onnx::ModelProto &model);

/// Tensors that separateMerged() has made -> the one that each was in the file.
using SeparatedTensors = llvm::StringMap<std::string>;
/// Gives layers biases, scales and matrices of their own where they share one of equal elements and no matrix or module
/// beside it: an exporter has merged initially equal tensors. Fails where `options.tie` keeps nothing together.
llvm::FailureOr<SeparatedTensors> separateMerged(::onnx::ModelProto &model, const ImportOptions &options,
                                                 llvm::StringRef folder, DeclaredParameters &declared,
                                                 mlir::Location loc);

/// Tensors that the file has a second time -> the one that they follow.
using JoinedTensors = llvm::StringMap<std::string>;
/// Makes one of tensors where an exporter has folded a transposed, repeated or partial copy of one that it keeps, or
/// of one that other copies are of. Nodes make the copy, which goes on to have its place in saved files.
JoinedTensors joinCopies(::onnx::ModelProto &model, llvm::StringRef folder, DeclaredParameters &declared,
                         mlir::Location loc);

/// Says which copies stay apart from tensors that the training of a file moves.
void warnOfCopies(::onnx::ModelProto &model, llvm::StringRef folder, DeclaredParameters declared,
                  const llvm::StringSet<> &trained, mlir::Location loc);

/// Both of these: copies of merged tensors are found once these are separate.
llvm::LogicalResult settleTensors(::onnx::ModelProto &model, const ImportOptions &options, llvm::StringRef folder,
                                  DeclaredParameters &declared, JoinedTensors &joined, SeparatedTensors &separated,
                                  mlir::Location loc);

/// Of values that torch.export's ONNX exporter has folded, the tensors of the module that they were made from, or with
/// `all` every value on the way as well.
llvm::StringMap<std::vector<std::string>> foldedFrom(const ::onnx::GraphProto &graph, bool all = false);

/// The path of the module that torch.export's exporter says a node to be of; nothing where it says none.
std::optional<llvm::StringRef> exportedModule(const ::onnx::NodeProto &node);

/// The values that a node's operation had as arguments in the exporter's program, in their order, without the other
/// arguments; nothing where the exporter does not say it.
std::vector<llvm::StringRef> exportedArguments(const ::onnx::NodeProto &node);

/// The names of parameters by the names that they have as arguments in the exporter's program.
llvm::StringMap<std::string> exportedPlaceholders(const ::onnx::GraphProto &graph);

/// Parameters of the exported program, with their place in its signature, which torch's exporter writes down; nothing
/// without one.
std::optional<llvm::StringMap<size_t>> exportedParameters(const ::onnx::GraphProto &graph);

/// Its buffers.
llvm::StringSet<> exportedBuffers(const ::onnx::GraphProto &graph);

/// How many batch normalizations have inference form; with --batch-norm=train they get the other one.
llvm::FailureOr<int64_t> settleBatchNorms(::onnx::ModelProto &model, const ImportOptions &options, mlir::Location loc);

/// The step that metadata `mpt.states` or training information describe. An algorithm's graph becomes part of the
/// model's graph.
llvm::FailureOr<StepInfo> takeStep(::onnx::ModelProto &model, mlir::Location loc);

/// Gives a graph's input or output that stands for a tensor its element type and shape.
void declareType(::onnx::ValueInfoProto &value, const ::onnx::TensorProto &tensor);
/// Adds a tensor to the model's graph, as its version of the format has it.
::onnx::TensorProto &addInitializer(::onnx::ModelProto &model, ::onnx::TensorProto tensor);
/// Declares a tensor as an input of a graph that reads it without holding it.
void declareInput(::onnx::GraphProto &graph, const ::onnx::TensorProto &tensor);

/// Visits nodes, also inside their graphs, until a visitor fails.
llvm::LogicalResult visitNodes(google::protobuf::RepeatedPtrField<::onnx::NodeProto> &nodes,
                               llvm::function_ref<llvm::LogicalResult(::onnx::NodeProto &)> visitor);
/// Visits a graph, then the graphs of its nodes.
void visitGraphs(const ::onnx::GraphProto &graph, llvm::function_ref<void(const ::onnx::GraphProto &)> visitor);
void visitGraphs(::onnx::GraphProto &graph, llvm::function_ref<void(::onnx::GraphProto &)> visitor);
/// The tensor of floats that a Constant node holds; null for scalars and other nodes.
const ::onnx::TensorProto *floatConstant(const ::onnx::NodeProto &node);
/// True where a filter or matrix of the graph is a Constant node: its producer writes weights so.
bool holdsMatrices(const ::onnx::GraphProto &graph);
/// Moves tensors of floats that subgraphs hold, Constant nodes included where these are weights, to the model's graph,
/// under their names or, where other values have these, `node.branch.name`. The numbers of extents stay.
void liftSubgraphWeights(::onnx::ModelProto &model);

/// Finds gradients and new values among the outputs: `P_grad` and `P_next`, P an initializer, and the ones that the
/// options name. Outputs that are not used are dropped; a seed becomes a node mpt.Seed.
llvm::FailureOr<JointRoles> takeJoint(::onnx::ModelProto &model, const ImportOptions &options, mlir::Location loc);
/// The backward pass among a graph's nodes, by the names of its outputs; no form where they name none.
TrainingForm formOfNodes(const ::onnx::GraphProto &graph);
/// The values that the output called `output` may be a gradient or a new value of, by its name.
llvm::SmallVector<llvm::StringRef> trainedBy(llvm::StringRef output);
/// Whether inputs whose gradients are outputs, by output, can be parameters: in a graph with a loss whose initializers
/// have fewer elements. Elsewhere they are data, and the gradients results.
bool inputsCanTrain(const ::onnx::GraphProto &graph, const llvm::StringMap<std::string> &found);
/// Fills maps from outputs to states that are empty by other customary names (`grad_P`, `P.grad`, `dP`; `new_P`,
/// `P_out`), where a style fits the types of enough tensors to be no accident.
void takeCustomaryNames(const ::onnx::GraphProto &graph, llvm::StringMap<std::string> &gradients,
                        llvm::StringMap<std::string> &next);

/// Appends a tensor of the input's type, without elements, for each of `roles.zeros`; `graph` is prepared.
void addZeros(const ::onnx::GraphProto &graph, const JointRoles &roles, std::vector<::onnx::TensorProto> &initializers);

/// Leaves the roles of outputs on the module: `onnx.training`.
void noteRoles(mlir::ModuleOp module, const JointRoles &roles);
/// Leaves the form for the user, once states have their roles: `mpt.manifest`.
void noteForm(mlir::ModuleOp module, const JointRoles &roles);

/// A graph beside the model's own that becomes a function: an algorithm with the model's graph before it, or the
/// initialization of state.
struct Algorithm {
  std::string name;                     ///< of the graph in the file
  ::onnx::ModelProto model;             ///< without the tensors that are states of the module
  llvm::StringMap<std::string> updates; ///< state whose new value an output is, by output
};

/// Training information that asks for gradients or names optimizers, or of which there are several.
struct Algorithms {
  std::vector<Algorithm> steps; ///< none in other files
  std::optional<Algorithm> initialization;
  StepInfo states; ///< of all of them; no updates
  TrainingForm form;
};

/// Domain of Gradient and of the standard's optimizers.
inline constexpr llvm::StringLiteral kTrainingDomain = "ai.onnx.preview.training";
/// True for operators of that domain, also where a file spells it ai.onnx.preview.
bool isTrainingOperator(const ::onnx::NodeProto &node);

/// Gives each Gradient node the operands y, xs and zs as its attributes name them, and where its inputs are other
/// tensors than these, the points for xs and zs. Nodes move behind their operands. Aliases of the domain become it.
llvm::LogicalResult takeGradientOperands(::onnx::ModelProto &model, mlir::MLIRContext *context);

/// Takes the training information out of `model` if it is of this kind; none otherwise. The algorithms have their own
/// graphs alone; joinAlgorithms() puts the model's before them.
llvm::FailureOr<Algorithms> takeAlgorithms(::onnx::ModelProto &model, mlir::Location loc);

/// Completes the algorithms' models once `model` is prepared: its nodes, `inputs` (as in the file), functions and
/// tensors, of which `initializers` has the elements, come first. Tensors that algorithms bring go to `initializers`.
llvm::LogicalResult joinAlgorithms(Algorithms &algorithms, const ::onnx::ModelProto &model,
                                   const ::onnx::ModelProto &header, std::vector<::onnx::TensorProto> &initializers,
                                   const ImportOptions &options, mlir::Location loc);

/// Builds the module of a prepared model, with the states of `step`; with the `header` of the model as it was in the
/// file, one that goes back into a file (see importNodes). Each algorithm becomes a function beside @main:
/// @algorithm.N, @initialization.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
buildModule(::onnx::ModelProto &model, std::vector<::onnx::TensorProto> &initializers, llvm::StringRef folder,
            const ImportOptions &options, mlir::MLIRContext *context, const StepInfo &step = {},
            ::onnx::ModelProto *header = nullptr, Algorithms *algorithms = nullptr);

/// Everything of `graph` but its nodes, initializers and inferred types.
void copyHeader(const ::onnx::GraphProto &graph, ::onnx::GraphProto &header);
/// The same of a model, whose functions are inlined.
::onnx::ModelProto modelHeader(const ::onnx::ModelProto &model);

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_PROTO_H
