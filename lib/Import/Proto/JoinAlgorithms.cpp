// SPDX-License-Identifier: Apache-2.0
// Training information of other producers: the model's graph before the graph of each algorithm.
#include "Proto.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

/// Puts the model's graph before the graphs of algorithms.
class Joining {
public:
  Joining(const ModelProto &model, const ModelProto &header, std::vector<TensorProto> &initializers,
          const ImportOptions &options, Location loc)
      : model(model), header(header), initializers(initializers), options(options), loc(loc),
        shared(initializers.size()) {
    for (const TensorProto &tensor : initializers)
      types[tensor.name()] = tensor.data_type();
  }

  /// The initialization of state reads nothing of the model.
  LogicalResult join(proto::Algorithm &step, bool readsModel) {
    GraphProto own;
    own.Swap(step.model.mutable_graph());
    step.model = header;
    *step.model.mutable_opset_import() = model.opset_import();
    step.model.clear_metadata_props();
    GraphProto &graph = *step.model.mutable_graph();
    graph.Clear();
    graph.set_name(step.name);
    if (readsModel)
      addModel(graph);
    addOutputs(graph, own, step);
    graph.mutable_node()->MergeFrom(own.node());
    graph.mutable_input()->MergeFrom(own.input());
    graph.mutable_initializer()->MergeFrom(own.initializer());
    std::vector<TensorProto> brought;
    if (failed(proto::prepareModel(step.model, brought, options, loc, /*isPart=*/true)))
      return failure();
    for (TensorProto &tensor : brought)
      if (types.try_emplace(tensor.name(), tensor.data_type()).second)
        initializers.push_back(std::move(tensor));
    return success();
  }

private:
  void addModel(GraphProto &graph) {
    *graph.mutable_node() = model.graph().node();
    *graph.mutable_input() = header.graph().input();
    *graph.mutable_initializer() = model.graph().initializer();
    *graph.mutable_output() = model.graph().output();
    llvm::StringSet<> present;
    for (const ValueInfoProto &input : graph.input())
      present.insert(input.name());
    for (const TensorProto &tensor : graph.initializer())
      present.insert(tensor.name());
    for (const TensorProto &tensor : ArrayRef(initializers).take_front(shared))
      if (!present.contains(tensor.name()))
        proto::declareInput(graph, tensor);
  }

  /// Also new values of state that the algorithm does not list.
  void addOutputs(GraphProto &graph, const GraphProto &own, const proto::Algorithm &step) {
    llvm::StringSet<> listed;
    for (const ValueInfoProto &output : graph.output())
      listed.insert(output.name());
    for (const ValueInfoProto &output : own.output())
      if (listed.insert(output.name()).second)
        *graph.add_output() = output;
    for (const auto &update : step.updates) {
      if (!listed.insert(update.getKey()).second)
        continue;
      ValueInfoProto &output = *graph.add_output();
      output.set_name(update.getKey().str());
      output.mutable_type()->mutable_tensor_type()->set_elem_type(typeOf(update.second, own));
    }
    // The checker wants shapes, and inference finds them again.
    for (ValueInfoProto &output : *graph.mutable_output())
      if (output.type().has_tensor_type())
        output.mutable_type()->mutable_tensor_type()->mutable_shape();
  }

  int32_t typeOf(StringRef state, const GraphProto &own) const {
    for (const TensorProto &tensor : own.initializer())
      if (tensor.name() == state)
        return tensor.data_type();
    auto known = types.find(state);
    return known == types.end() ? static_cast<int32_t>(TensorProto::FLOAT) : known->second;
  }

  const ModelProto &model, &header;
  std::vector<TensorProto> &initializers;
  const ImportOptions &options;
  Location loc;
  size_t shared; ///< initializers of the model
  llvm::StringMap<int32_t> types;
};

} // namespace

LogicalResult proto::joinAlgorithms(Algorithms &algorithms, const ModelProto &model, const ModelProto &header,
                                    std::vector<TensorProto> &initializers, const ImportOptions &options,
                                    Location loc) {
  Joining joining(model, header, initializers, options, loc);
  for (Algorithm &step : algorithms.steps)
    if (failed(joining.join(step, /*readsModel=*/true)))
      return failure();
  return algorithms.initialization ? joining.join(*algorithms.initialization, /*readsModel=*/false) : success();
}
