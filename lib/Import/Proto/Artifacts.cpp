// SPDX-License-Identifier: Apache-2.0
// Training models of ONNX Runtime as joint graphs.
#include "Artifacts.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

constexpr StringLiteral runtimeDomain = "com.microsoft";
constexpr StringLiteral bufferSuffix = "_grad.accumulation.buffer";

class ArtifactReader {
public:
  ArtifactReader(ModelProto &model, const ImportOptions &options, Location loc, proto::Artifacts &artifacts)
      : graph(*model.mutable_graph()), options(options), loc(loc), artifacts(artifacts) {}

  LogicalResult run() {
    if (failed(takeAccumulators()) || failed(takeValues()))
      return failure();
    keepShapes();
    warnOfSequences();
    return success();
  }

private:
  /// The accumulated value becomes an output that is the gradient; buffers and their outputs go.
  LogicalResult takeAccumulators() {
    llvm::StringSet<> dropped;
    google::protobuf::RepeatedPtrField<NodeProto> kept;
    std::vector<std::pair<std::string, std::string>> gradients; // value, parameter
    for (NodeProto &node : *graph.mutable_node()) {
      if (!proto::isAccumulator(node)) {
        kept.Add(std::move(node));
        continue;
      }
      StringRef parameter = node.input_size() > 1 ? StringRef(node.input(0)) : StringRef();
      if (!parameter.consume_back(bufferSuffix) || parameter.empty())
        return emitError(proto::namedLoc(loc.getContext(), proto::nodeName(node)))
               << "expected an accumulator over P" << bufferSuffix << ", got '"
               << (node.input_size() ? StringRef(node.input(0)) : StringRef()) << "'";
      gradients.emplace_back(node.input(1), parameter.str());
      dropped.insert_range(node.input());
      dropped.erase(node.input(1));
      dropped.insert_range(node.output());
    }
    graph.mutable_node()->Swap(&kept);
    erase(*graph.mutable_input(), dropped);
    erase(*graph.mutable_output(), dropped);
    llvm::StringMap<const ValueInfoProto *> inputs;
    for (const ValueInfoProto &input : graph.input())
      inputs[input.name()] = &input;
    for (auto &[value, parameter] : gradients) {
      std::string name = parameter + "_grad";
      if (value != name) {
        NodeProto &node = *graph.add_node();
        node.set_op_type("Identity");
        node.add_input(value);
        node.add_output(name);
      }
      ValueInfoProto &output = *graph.add_output();
      if (const ValueInfoProto *input = inputs.lookup(parameter))
        output = *input;
      output.set_name(name);
      trained.insert(parameter);
    }
    return success();
  }

  static void erase(google::protobuf::RepeatedPtrField<ValueInfoProto> &list, const llvm::StringSet<> &names) {
    google::protobuf::RepeatedPtrField<ValueInfoProto> kept;
    for (ValueInfoProto &info : list)
      if (!names.contains(info.name()))
        kept.Add(std::move(info));
    list.Swap(&kept);
  }

  /// Inputs of which the checkpoint has values become initializers. Without one, takeJoint() makes state of them.
  LogicalResult takeValues() {
    if (options.checkpoint.empty())
      return success();
    FailureOr<proto::Checkpoint> checkpoint = proto::openCheckpoint(options, loc);
    if (failed(checkpoint))
      return failure();
    artifacts.optimizer = std::move(checkpoint->optimizer);
    llvm::StringMap<TensorProto *> values;
    for (auto *list : {&checkpoint->trained, &checkpoint->frozen})
      for (TensorProto &tensor : *list)
        values[tensor.name()] = &tensor;
    llvm::StringSet<> taken;
    for (const ValueInfoProto &input : graph.input()) {
      TensorProto *tensor = values.lookup(input.name());
      if (!tensor) {
        if (trained.contains(input.name()))
          return emitError(proto::namedLoc(loc.getContext(), input.name()))
                 << "expected the values of parameter '" << input.name() << "' in checkpoint '" << options.checkpoint
                 << "', got none";
        continue;
      }
      if (failed(checkType(input, *tensor)))
        return failure();
      *graph.add_initializer() = *tensor;
      taken.insert(input.name());
    }
    erase(*graph.mutable_input(), taken);
    return success();
  }

  LogicalResult checkType(const ValueInfoProto &input, const TensorProto &tensor) {
    const auto &type = input.type().tensor_type();
    bool same = type.elem_type() == tensor.data_type() && type.shape().dim_size() == tensor.dims_size();
    for (int i = 0; same && i < tensor.dims_size(); ++i)
      same = !type.shape().dim(i).has_dim_value() || type.shape().dim(i).dim_value() == tensor.dims(i);
    if (same)
      return success();
    return emitError(proto::namedLoc(loc.getContext(), input.name()))
           << "expected the checkpoint's '" << input.name() << "' in the type of the graph's input, got another";
  }

  /// Gradients of average pooling have the shape of their result in the file's types and nowhere else.
  void keepShapes() {
    llvm::StringMap<const ValueInfoProto *> types;
    for (const ValueInfoProto &info : graph.value_info())
      types[info.name()] = &info;
    for (NodeProto &node : *graph.mutable_node()) {
      const ValueInfoProto *info =
          node.op_type() == "AveragePoolGrad" && node.output_size() ? types.lookup(node.output(0)) : nullptr;
      if (!info)
        continue;
      AttributeProto &attribute = *node.add_attribute();
      attribute.set_name("input_shape");
      attribute.set_type(AttributeProto::INTS);
      for (const auto &dim : info->type().tensor_type().shape().dim()) {
        auto bound = options.bindings.find(dim.dim_param());
        attribute.add_ints(dim.has_dim_value()               ? dim.dim_value()
                           : bound != options.bindings.end() ? bound->second
                                                             : -1);
      }
    }
  }

  /// ONNX Runtime builds no gradient through sequences, and drops that part of the sum without a word.
  void warnOfSequences() {
    if (options.backward == "own")
      return;
    for (const NodeProto &node : graph.node())
      if (node.op_type() == "SplitToSequence" || node.op_type() == "SequenceConstruct") {
        emitWarning(proto::namedLoc(loc.getContext(), proto::nodeName(node)))
            << "the file has no gradient through " << node.op_type()
            << ", where ONNX Runtime Training stops: gradients behind it lack a part; --backward=own computes them all";
        return;
      }
  }

  GraphProto &graph;
  const ImportOptions &options;
  Location loc;
  proto::Artifacts &artifacts;
  llvm::StringSet<> trained;
};

} // namespace

bool proto::isAccumulator(const NodeProto &node) {
  return node.domain() == runtimeDomain && node.op_type() == "InPlaceAccumulatorV2";
}

FailureOr<std::unique_ptr<llvm::MemoryBuffer>> proto::openFile(StringRef what, StringRef path, Location loc) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return emitError(loc) << "cannot open " << what << " '" << path << "': " << file.getError().message();
  return std::move(*file);
}

FailureOr<proto::Checkpoint> proto::openCheckpoint(const ImportOptions &options, Location loc) {
  StringRef folder = options.checkpoint;
  if (folder.ends_with(".pbseq"))
    folder = llvm::sys::path::parent_path(folder).empty() ? "." : llvm::sys::path::parent_path(folder);
  if (llvm::sys::fs::is_directory(folder))
    return readCheckpointFolder(folder, namedLoc(loc.getContext(), options.checkpoint));
  auto file = openFile("checkpoint", options.checkpoint, loc);
  if (failed(file))
    return failure();
  return readCheckpoint((*file)->getBuffer(), namedLoc(loc.getContext(), options.checkpoint));
}

FailureOr<proto::Artifacts> proto::takeArtifacts(ModelProto &model, const ImportOptions &options, Location loc) {
  Artifacts artifacts;
  artifacts.found = llvm::any_of(model.graph().node(), isAccumulator);
  if ((artifacts.found || !options.checkpoint.empty()) && failed(ArtifactReader(model, options, loc, artifacts).run()))
    return failure();
  return artifacts;
}
