// SPDX-License-Identifier: Apache-2.0
// Training models of ONNX Runtime as joint graphs.
#include "Artifacts.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

constexpr StringLiteral runtimeDomain = "com.microsoft";
constexpr StringLiteral bufferSuffix = "_grad.accumulation.buffer";

bool isAccumulator(const NodeProto &node) {
  return node.domain() == runtimeDomain && node.op_type() == "InPlaceAccumulatorV2";
}

class ArtifactReader {
public:
  ArtifactReader(ModelProto &model, const ImportOptions &options, Location loc)
      : graph(*model.mutable_graph()), options(options), loc(loc) {}

  LogicalResult run() {
    if (failed(takeAccumulators()) || failed(takeValues()))
      return failure();
    keepShapes();
    return success();
  }

private:
  /// The accumulated value becomes an output that is the gradient; buffers and their outputs go.
  LogicalResult takeAccumulators() {
    llvm::StringSet<> dropped;
    google::protobuf::RepeatedPtrField<NodeProto> kept;
    std::vector<std::pair<std::string, std::string>> gradients; // value, parameter
    for (NodeProto &node : *graph.mutable_node()) {
      if (!isAccumulator(node)) {
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

  /// Inputs of which the checkpoint has values become initializers.
  LogicalResult takeValues() {
    if (options.checkpoint.empty())
      return emitError(loc) << "expected the values of " << trained.size()
                            << " parameters, which ONNX Runtime's training models take as inputs; name the checkpoint "
                               "beside it: --checkpoint=FILE";
    auto file = llvm::MemoryBuffer::getFile(options.checkpoint, /*IsText=*/false, /*RequiresNullTerminator=*/false);
    if (!file)
      return emitError(loc) << "cannot open checkpoint '" << options.checkpoint << "': " << file.getError().message();
    FailureOr<proto::Checkpoint> checkpoint =
        proto::readCheckpoint((*file)->getBuffer(), proto::namedLoc(loc.getContext(), options.checkpoint));
    if (failed(checkpoint))
      return failure();
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

  GraphProto &graph;
  const ImportOptions &options;
  Location loc;
  llvm::StringSet<> trained;
};

} // namespace

FailureOr<bool> proto::takeArtifacts(ModelProto &model, const ImportOptions &options, Location loc) {
  if (llvm::none_of(model.graph().node(), isAccumulator))
    return false;
  if (failed(ArtifactReader(model, options, loc).run()))
    return failure();
  return true;
}

static double numberOf(const NodeProto &node, StringRef name, double otherwise) {
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return attribute.type() == AttributeProto::INT ? static_cast<double>(attribute.i()) : attribute.f();
  return otherwise;
}

LogicalResult proto::takeOptimizer(const ImportOptions &options, JointRoles &roles, Location loc) {
  if (options.optimizerModel.empty())
    return success();
  auto file = llvm::MemoryBuffer::getFile(options.optimizerModel, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return emitError(loc) << "cannot open optimizer model '" << options.optimizerModel
                          << "': " << file.getError().message();
  Location at = namedLoc(loc.getContext(), options.optimizerModel);
  ModelProto model;
  if (failed(parseModel((*file)->getBuffer(), model, at)))
    return failure();
  for (const NodeProto &node : model.graph().node()) {
    if (node.op_type() == "SGDOptimizerV2")
      roles.optimizer = "sgd,lr=0.001";
    if (node.op_type() == "InplaceClipGradNorm")
      emitWarning(at) << "the optimizer model clips gradients: give --clip-norm="
                      << llvm::formatv("{0}", numberOf(node, "max_norm", 1)).str() << " to do so";
    if (node.op_type() != "AdamWOptimizer")
      continue;
    if (numberOf(node, "adam_mode", 0) != 0)
      emitWarning(at) << "the optimizer model adds epsilon before it corrects the second moment (adam_mode 1), adamw "
                         "after: first steps differ where gradients are small";
    roles.optimizer = llvm::formatv("adamw,lr=0.001,betas={0}:{1},eps={2},weight-decay={3}",
                                    numberOf(node, "alpha", 0.9), numberOf(node, "beta", 0.999),
                                    numberOf(node, "epsilon", 1e-8), numberOf(node, "weight_decay", 1e-2))
                          .str();
  }
  if (roles.optimizer.empty())
    return emitError(at) << "expected AdamWOptimizer or SGDOptimizerV2 in the optimizer model, got neither; give "
                            "--optimizer";
  roles.form.optimizer = roles.optimizer;
  return success();
}
