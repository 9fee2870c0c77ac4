// SPDX-License-Identifier: Apache-2.0
// cuDNN's graphs: descriptors that they are made of, and the search for an engine.
#include "cuda/ConvGraph.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

using namespace mpt::rt;

namespace {

constexpr int64_t mostEngines = 16; // that are asked for their notes
constexpr int64_t mostPlans = 4;    // each may be compiled

int rankOf(const mpt_conv_desc &d) { return d.in[0] == 1 && d.out[0] == 1 && d.kernel[0] == 1 ? 2 : 3; }

/// The same bits every time, of the operands as they are, summed in FP32. False as well where the engine says nothing.
bool isExact(GraphMaker &b, dnn::Descriptor config) {
  dnn::Descriptor engine = b.make(dnn::EngineDescriptor);
  int64_t count = 0;
  int notes[dnn::NoteCount] = {};
  if (b.status || b.api.BackendGetAttribute(config, dnn::ConfigEngine, dnn::DescriptorsType, 1, &count, &engine) ||
      count != 1 ||
      b.api.BackendGetAttribute(engine, dnn::EngineNotes, dnn::NumericalNoteType, dnn::NoteCount, &count, notes))
    return false;
  for (int64_t i = 0; i < count; ++i)
    if (notes[i] == dnn::NoteNondeterministic || notes[i] == dnn::NoteDownConvert || notes[i] == dnn::NoteNarrowSums)
      return false;
  return true;
}

class Plan : public GraphPlan {
public:
  Plan(ConvLibrary &library, std::shared_ptr<GraphMaker> origin, const GraphForm &form)
      : library(library), origin(std::move(origin)), name(form.name), ids(form.ids), spares(form.spares),
        spareBytes((form.spareBytes + 255) / 256 * 256), maker(*library.graphs) {
    for (auto [id, number] : form.numbers) {
      ids.push_back(id);
      numbers.push_back(number);
    }
  }

  bool build(dnn::Descriptor config) {
    plan = maker.make(dnn::PlanDescriptor);
    maker.set(plan, dnn::PlanHandle, dnn::HandleType, library.handle);
    maker.set(plan, dnn::PlanConfig, dnn::DescriptorsType, config);
    maker.finish(plan);
    int64_t count = 0;
    return !maker.status &&
           !maker.api.BackendGetAttribute(plan, dnn::PlanWorkspace, dnn::Int64Type, 1, &count, &workspace) &&
           workspace <= ConvLibrary::workspaceBytes;
  }
  mpt_status run(CudaDevice &device, const std::vector<void *> &pointers) override {
    dnn::Status status = 0;
    if (mpt_status ran = execute(device, pointers, status))
      return ran;
    return status ? fail(MPT_INTERNAL, "%s: cuDNN: %s", name, library.api.GetErrorString(status)) : MPT_OK;
  }
  mpt_status execute(CudaDevice &device, std::vector<void *> pointers, dnn::Status &status) {
    const int64_t own = (workspace + 255) / 256 * 256, bytes = own + static_cast<int64_t>(spares) * spareBytes;
    uint8_t *scratch = bytes ? device.scratch(bytes) : nullptr;
    if (bytes && !scratch)
      return MPT_OUT_OF_MEMORY;
    for (size_t i = 0; i < spares; ++i)
      pointers.push_back(scratch + own + static_cast<int64_t>(i) * spareBytes);
    for (float &number : numbers)
      pointers.push_back(&number);
    std::vector<int64_t> present;
    for (size_t i = 0; i < pointers.size(); ++i)
      if (pointers[i])
        present.push_back(ids[i]);
    pointers.erase(std::remove(pointers.begin(), pointers.end(), nullptr), pointers.end());
    GraphMaker b(*library.graphs);
    dnn::Descriptor pack = b.make(dnn::PackDescriptor);
    b.set(pack, dnn::PackIds, dnn::Int64Type, present.data(), present.size());
    b.set(pack, dnn::PackPointers, dnn::PointerType, pointers.data(), pointers.size());
    b.set(pack, dnn::PackWorkspace, dnn::PointerType, scratch);
    b.finish(pack);
    status = b.status ? b.status : library.graphs->BackendExecute(library.handle, plan, pack);
    return MPT_OK;
  }
  /// Milliseconds; negative where it does not run.
  float measure(CudaDevice &device, const std::vector<void *> &pointers) {
    return device.fastest(2, [&] {
      dnn::Status status = 0;
      return execute(device, pointers, status) == MPT_OK && !status;
    });
  }

private:
  ConvLibrary &library;
  std::shared_ptr<GraphMaker> origin; // what the plan is made of
  const char *const name;
  std::vector<int64_t> ids;
  std::vector<float> numbers; // read when a run is put on the stream
  const size_t spares;
  const int64_t spareBytes;
  GraphMaker maker;
  dnn::Descriptor plan = nullptr;
  int64_t workspace = 0;
};

} // namespace

dnn::Descriptor GraphMaker::tensor(int64_t id, int type, const std::vector<int64_t> &shape,
                                   const std::vector<int64_t> &strides, Place place) {
  dnn::Descriptor t = make(dnn::TensorDescriptor);
  set(t, dnn::TensorDataType, dnn::DataTypeType, type);
  setVector(t, dnn::TensorDimensions, shape);
  setVector(t, dnn::TensorStrides, strides);
  set(t, dnn::TensorId, dnn::Int64Type, id);
  set(t, dnn::TensorAlignment, dnn::Int64Type, graphAlignment);
  if (place == Place::Inside)
    set(t, dnn::TensorIsVirtual, dnn::BooleanType, true);
  if (place == Place::Number)
    set(t, dnn::TensorIsNumber, dnn::BooleanType, true);
  return finish(t);
}

dnn::Descriptor GraphMaker::tensor(int64_t id, int type, const mpt_conv_desc &d, int64_t images, int64_t channels,
                                   const int64_t (&extents)[3], bool isVirtual) {
  const int rank = rankOf(d);
  std::vector<int64_t> shape{images, channels}, strides(static_cast<size_t>(rank) + 2);
  for (int i = 3 - rank; i < 3; ++i)
    shape.push_back(extents[i]);
  int64_t stride = channels;
  for (size_t i = strides.size(); i-- > 2; stride *= shape[i])
    strides[i] = stride;
  strides[1] = 1;
  strides[0] = stride;
  return tensor(id, type, shape, strides, isVirtual ? Place::Inside : Place::Memory);
}

dnn::Descriptor GraphMaker::byChannel(int64_t id, const mpt_conv_desc &d, int64_t channels) {
  const int64_t ones[3] = {1, 1, 1};
  return tensor(id, dnn::Float, d, 1, channels, ones);
}

dnn::Descriptor GraphMaker::convolution(const mpt_conv_desc &d) {
  const int single = dnn::Float, mode = dnn::CrossCorrelation;
  const int64_t rank = rankOf(d);
  auto spatial = [&](const int64_t (&values)[3]) { return std::vector<int64_t>(values + 3 - rank, values + 3); };
  dnn::Descriptor conv = make(dnn::ConvolutionDescriptor);
  set(conv, dnn::ConvolutionSpatialDims, dnn::Int64Type, rank);
  set(conv, dnn::ConvolutionCompute, dnn::DataTypeType, single);
  set(conv, dnn::ConvolutionMode, dnn::ConvolutionModeType, mode);
  setVector(conv, dnn::ConvolutionPrePaddings, spatial(d.pad_low));
  setVector(conv, dnn::ConvolutionPostPaddings, spatial(d.pad_high));
  setVector(conv, dnn::ConvolutionDilations, spatial(d.dilation));
  setVector(conv, dnn::ConvolutionStrides, spatial(d.stride));
  return finish(conv);
}

dnn::Descriptor GraphMaker::pointwise(dnn::PointwiseFunction function, dnn::Descriptor x, dnn::Descriptor b,
                                      dnn::Descriptor y, dnn::Descriptor t, int64_t axis) {
  const int mode = function, precision = function == dnn::GreaterOrEqual ? dnn::Boolean : dnn::Float;
  dnn::Descriptor settings = make(dnn::PointwiseDescriptor);
  set(settings, dnn::PointwiseMode, dnn::PointwiseModeType, mode);
  set(settings, dnn::PointwisePrecision, dnn::DataTypeType, precision);
  if (axis >= 0)
    set(settings, dnn::PointwiseAxis, dnn::Int64Type, axis);
  finish(settings);
  dnn::Descriptor operation = make(dnn::PointwiseOperationDescriptor);
  link(operation, {{dnn::PointwiseDescriptorOf, settings}, {dnn::PointwiseX, x}});
  if (function == dnn::ReluGradient)
    link(operation, {{dnn::PointwiseGradientY, b}, {dnn::PointwiseGradientX, y}});
  else if (b)
    link(operation, {{dnn::PointwiseB, b}, {dnn::PointwiseY, y}});
  else
    link(operation, {{dnn::PointwiseY, y}});
  if (t)
    link(operation, {{dnn::PointwiseT, t}});
  return finish(operation);
}

dnn::Descriptor GraphMaker::reduction(dnn::Reduction function, dnn::Descriptor x, dnn::Descriptor y, bool ordered) {
  const int operation = function, single = dnn::Float;
  dnn::Descriptor settings = make(dnn::ReductionDescriptor);
  set(settings, dnn::ReductionOperator, dnn::ReductionType, operation);
  set(settings, dnn::ReductionPrecision, dnn::DataTypeType, single);
  if (ordered)
    set(settings, dnn::ReductionIsDeterministic, dnn::BooleanType, ordered);
  finish(settings);
  dnn::Descriptor reduce = make(dnn::ReductionOperationDescriptor);
  link(reduce, {{dnn::ReductionX, x}, {dnn::ReductionY, y}, {dnn::ReductionDescriptorOf, settings}});
  return finish(reduce);
}

dnn::Descriptor GraphMaker::gemm(dnn::Descriptor a, dnn::Descriptor b, dnn::Descriptor c) {
  const int single = dnn::Float;
  dnn::Descriptor settings = make(dnn::MatmulDescriptor);
  set(settings, dnn::MatmulPrecision, dnn::DataTypeType, single);
  finish(settings);
  dnn::Descriptor matmul = make(dnn::MatmulOperationDescriptor);
  link(matmul, {{dnn::MatmulA, a}, {dnn::MatmulB, b}, {dnn::MatmulC, c}, {dnn::MatmulDescriptorOf, settings}});
  return finish(matmul);
}

dnn::Descriptor GraphMaker::reshape(dnn::Descriptor x, dnn::Descriptor y) {
  dnn::Descriptor view = make(dnn::ReshapeDescriptor);
  link(view, {{dnn::ReshapeX, x}, {dnn::ReshapeY, y}});
  return finish(view);
}

dnn::Descriptor GraphMaker::graph(dnn::Handle handle, const std::vector<dnn::Descriptor> &operations) {
  dnn::Descriptor graph = make(dnn::GraphDescriptor);
  if (handle)
    set(graph, dnn::GraphHandle, dnn::HandleType, handle);
  set(graph, dnn::GraphOperations, dnn::DescriptorsType, operations.data(), operations.size());
  return finish(graph);
}

std::shared_ptr<GraphPlan> mpt::rt::searchPlan(CudaDevice &device, ConvLibrary &library,
                                               const std::vector<GraphForm> &forms,
                                               const std::vector<void *> &pointers) {
  const bool first = !device.options.search;
  std::shared_ptr<Plan> best;
  float bestTime = -1;
  for (const GraphForm &form : forms) {
    auto origin = std::make_shared<GraphMaker>(*library.graphs);
    dnn::Descriptor graph = form.make(*origin);
    dnn::Descriptor heuristic = origin->make(dnn::HeuristicDescriptor);
    const int mode = dnn::HeuristicA;
    origin->set(heuristic, dnn::HeuristicGraph, dnn::DescriptorsType, graph);
    origin->set(heuristic, dnn::HeuristicMode, dnn::HeuristicModeType, mode);
    origin->finish(heuristic);
    dnn::Descriptor configs[mostEngines];
    for (dnn::Descriptor &config : configs)
      config = origin->make(dnn::EngineConfigDescriptor);
    int64_t count = 0;
    if (origin->status || library.graphs->BackendGetAttribute(heuristic, dnn::HeuristicResults, dnn::DescriptorsType,
                                                              mostEngines, &count, configs))
      continue;
    int64_t plans = 0;
    for (int64_t i = 0; i < count && i < mostEngines && plans < mostPlans && !(first && best); ++i) {
      if (!isExact(*origin, configs[i]))
        continue;
      auto candidate = std::make_shared<Plan>(library, origin, form);
      ++plans;
      if (!candidate->build(configs[i]))
        continue;
      float time = candidate->measure(device, pointers);
      if (time >= 0 && (!best || time < bestTime)) {
        best = std::move(candidate);
        bestTime = time;
      }
    }
    if (best)
      break;
  }
  return best;
}
