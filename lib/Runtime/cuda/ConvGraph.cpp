// Convolutions whose results cuDNN sums up on the way: a graph of convolution and statistics, one engine for both.
#include "cuda/ConvGraph.h"

#include <cstdlib>
#include <cstring>
#include <utility>

using namespace mpt::rt;

namespace {

/// Descriptors that are destroyed together, and whether every call on them has succeeded.
class Builder {
public:
  explicit Builder(const dnn::GraphFunctions &api) : api(api) {}
  Builder(const Builder &) = delete;
  ~Builder() {
    for (dnn::Descriptor descriptor : owned)
      api.BackendDestroyDescriptor(descriptor);
  }
  dnn::Descriptor make(int type) {
    dnn::Descriptor descriptor = nullptr;
    if (!status)
      status = api.BackendCreateDescriptor(type, &descriptor);
    if (!status)
      owned.push_back(descriptor);
    return descriptor;
  }
  template <typename T> void set(dnn::Descriptor descriptor, int name, int type, const T *elements, size_t count = 1) {
    if (!status)
      status = api.BackendSetAttribute(descriptor, name, type, static_cast<int64_t>(count), elements);
  }
  template <typename T> void set(dnn::Descriptor descriptor, int name, int type, const T &element) {
    set(descriptor, name, type, &element, 1);
  }
  void setVector(dnn::Descriptor descriptor, int name, const std::vector<int64_t> &values) {
    set(descriptor, name, dnn::Int64Type, values.data(), values.size());
  }
  dnn::Descriptor finish(dnn::Descriptor descriptor) {
    if (!status)
      status = api.BackendFinalize(descriptor);
    return descriptor;
  }

  const dnn::GraphFunctions &api;
  dnn::Status status = 0;

private:
  std::vector<dnn::Descriptor> owned;
};

enum : int64_t { X = 1, W, Y, Sum, Squares, Raw };
constexpr int64_t alignment = 16;  // of every operand
constexpr int64_t mostEngines = 4; // each may be compiled

int dataType(int64_t dtype) { return dtype == MPT_FLOAT16 ? dnn::Half : dnn::BFloat16; }

/// A channels-last tensor of `channels` and the last `rank` of `extents`.
dnn::Descriptor tensor(Builder &b, int64_t id, int type, int64_t images, int64_t channels, const int64_t (&extents)[3],
                       int rank, bool isVirtual = false) {
  std::vector<int64_t> shape{images, channels}, strides(static_cast<size_t>(rank) + 2);
  for (int i = 3 - rank; i < 3; ++i)
    shape.push_back(extents[i]);
  int64_t stride = channels;
  for (size_t i = strides.size(); i-- > 2; stride *= shape[i])
    strides[i] = stride;
  strides[1] = 1;
  strides[0] = stride;
  dnn::Descriptor t = b.make(dnn::TensorDescriptor);
  b.set(t, dnn::TensorDataType, dnn::DataTypeType, type);
  b.setVector(t, dnn::TensorDimensions, shape);
  b.setVector(t, dnn::TensorStrides, strides);
  b.set(t, dnn::TensorId, dnn::Int64Type, id);
  b.set(t, dnn::TensorAlignment, dnn::Int64Type, alignment);
  if (isVirtual)
    b.set(t, dnn::TensorIsVirtual, dnn::BooleanType, true);
  return b.finish(t);
}

/// The graph; `wide`: the convolution's FP32 result is summed and, for y, rounded, else what was rounded is summed.
dnn::Descriptor graphOf(Builder &b, dnn::Handle handle, const mpt_conv_desc &d, bool wide) {
  const int rank = d.in[0] == 1 && d.out[0] == 1 && d.kernel[0] == 1 ? 2 : 3, type = dataType(d.x_type);
  const int single = dnn::Float, mode = dnn::CrossCorrelation;
  const int64_t ones[3] = {1, 1, 1};
  dnn::Descriptor x = tensor(b, X, type, d.n, d.ic, d.in, rank), w = tensor(b, W, type, d.oc, d.ic, d.kernel, rank);
  dnn::Descriptor y = tensor(b, Y, type, d.n, d.oc, d.out, rank);
  dnn::Descriptor raw = wide ? tensor(b, Raw, single, d.n, d.oc, d.out, rank, /*isVirtual=*/true) : y;
  dnn::Descriptor sum = tensor(b, Sum, single, 1, d.oc, ones, rank),
                  squares = tensor(b, Squares, single, 1, d.oc, ones, rank);

  auto spatial = [&](const int64_t (&values)[3]) { return std::vector<int64_t>(values + 3 - rank, values + 3); };
  dnn::Descriptor conv = b.make(dnn::ConvolutionDescriptor);
  const int64_t dims = rank;
  b.set(conv, dnn::ConvolutionSpatialDims, dnn::Int64Type, dims);
  b.set(conv, dnn::ConvolutionCompute, dnn::DataTypeType, single);
  b.set(conv, dnn::ConvolutionMode, dnn::ConvolutionModeType, mode);
  b.setVector(conv, dnn::ConvolutionPrePaddings, spatial(d.pad_low));
  b.setVector(conv, dnn::ConvolutionPostPaddings, spatial(d.pad_high));
  b.setVector(conv, dnn::ConvolutionDilations, spatial(d.dilation));
  b.setVector(conv, dnn::ConvolutionStrides, spatial(d.stride));
  b.finish(conv);

  dnn::Descriptor forward = b.make(dnn::ForwardDescriptor);
  const float one = 1, zero = 0;
  b.set(forward, dnn::ForwardX, dnn::DescriptorsType, x);
  b.set(forward, dnn::ForwardW, dnn::DescriptorsType, w);
  b.set(forward, dnn::ForwardY, dnn::DescriptorsType, raw);
  b.set(forward, dnn::ForwardConvolution, dnn::DescriptorsType, conv);
  b.set(forward, dnn::ForwardAlpha, dnn::FloatType, one);
  b.set(forward, dnn::ForwardBeta, dnn::FloatType, zero);
  b.finish(forward);
  std::vector<dnn::Descriptor> operations{forward};

  if (wide) {
    const int identity = dnn::Identity;
    dnn::Descriptor pointwise = b.make(dnn::PointwiseDescriptor);
    b.set(pointwise, dnn::PointwiseMode, dnn::PointwiseModeType, identity);
    b.set(pointwise, dnn::PointwisePrecision, dnn::DataTypeType, single);
    b.finish(pointwise);
    dnn::Descriptor round = b.make(dnn::PointwiseOperationDescriptor);
    b.set(round, dnn::PointwiseDescriptorOf, dnn::DescriptorsType, pointwise);
    b.set(round, dnn::PointwiseX, dnn::DescriptorsType, raw);
    b.set(round, dnn::PointwiseY, dnn::DescriptorsType, y);
    operations.push_back(b.finish(round));
  }
  dnn::Descriptor statistics = b.make(dnn::StatisticsDescriptor);
  const int both = dnn::SumAndSquares;
  b.set(statistics, dnn::StatisticsMode, dnn::StatisticsModeType, both);
  b.set(statistics, dnn::StatisticsPrecision, dnn::DataTypeType, single);
  b.set(statistics, dnn::StatisticsX, dnn::DescriptorsType, raw);
  b.set(statistics, dnn::StatisticsSum, dnn::DescriptorsType, sum);
  b.set(statistics, dnn::StatisticsSquares, dnn::DescriptorsType, squares);
  operations.push_back(b.finish(statistics));

  dnn::Descriptor graph = b.make(dnn::GraphDescriptor);
  b.set(graph, dnn::GraphHandle, dnn::HandleType, handle);
  b.set(graph, dnn::GraphOperations, dnn::DescriptorsType, operations.data(), operations.size());
  return b.finish(graph);
}

/// False as well where the engine says nothing.
bool isDeterministic(Builder &b, dnn::Descriptor config) {
  dnn::Descriptor engine = b.make(dnn::EngineDescriptor);
  int64_t count = 0;
  int notes[dnn::NoteCount] = {};
  if (b.status || b.api.BackendGetAttribute(config, dnn::ConfigEngine, dnn::DescriptorsType, 1, &count, &engine) ||
      count != 1 ||
      b.api.BackendGetAttribute(engine, dnn::EngineNotes, dnn::NumericalNoteType, dnn::NoteCount, &count, notes))
    return false;
  for (int64_t i = 0; i < count; ++i)
    if (notes[i] == dnn::NoteNondeterministic)
      return false;
  return true;
}

class Plan : public ConvWithSums {
public:
  Plan(ConvLibrary &library, std::shared_ptr<Builder> origin, int64_t channels)
      : library(library), origin(std::move(origin)), channels(channels), builder(*library.graphs) {}

  bool build(dnn::Descriptor config) {
    plan = builder.make(dnn::PlanDescriptor);
    builder.set(plan, dnn::PlanHandle, dnn::HandleType, library.handle);
    builder.set(plan, dnn::PlanConfig, dnn::DescriptorsType, config);
    builder.finish(plan);
    int64_t count = 0;
    return !builder.status &&
           !builder.api.BackendGetAttribute(plan, dnn::PlanWorkspace, dnn::Int64Type, 1, &count, &workspace) &&
           workspace <= ConvLibrary::workspaceBytes;
  }
  mpt_status run(CudaDevice &device, void *x, void *w, void *y, float *sums) override {
    dnn::Status status = 0;
    if (mpt_status ran = execute(device, x, w, y, sums, status))
      return ran;
    return status ? fail(MPT_INTERNAL, "convolution with sums: cuDNN: %s", library.api.GetErrorString(status)) : MPT_OK;
  }
  mpt_status execute(CudaDevice &device, void *x, void *w, void *y, float *sums, dnn::Status &status) {
    uint8_t *scratch = workspace ? device.scratch(workspace) : nullptr;
    if (workspace && !scratch)
      return MPT_OUT_OF_MEMORY;
    Builder b(*library.graphs);
    dnn::Descriptor pack = b.make(dnn::PackDescriptor);
    const int64_t ids[] = {X, W, Y, Sum, Squares};
    void *pointers[] = {x, w, y, sums, sums + channels};
    b.set(pack, dnn::PackIds, dnn::Int64Type, ids, 5);
    b.set(pack, dnn::PackPointers, dnn::PointerType, pointers, 5);
    b.set(pack, dnn::PackWorkspace, dnn::PointerType, scratch);
    b.finish(pack);
    status = b.status ? b.status : library.graphs->BackendExecute(library.handle, plan, pack);
    return MPT_OK;
  }
  /// Milliseconds, the best of some; negative where it does not run.
  float measure(CudaDevice &device, void *x, void *w, void *y, float *sums) {
    float best = -1;
    cu::Event events[2] = {};
    bool ok = true;
    for (cu::Event &event : events)
      ok = device.api.EventCreate(&event, cu::EventDefault) == cu::Success && ok;
    for (int round = 0; ok && round < 3; ++round) {
      float milliseconds = 0;
      dnn::Status status = 0;
      device.api.EventRecord(events[0], device.stream);
      ok = execute(device, x, w, y, sums, status) == MPT_OK && !status;
      device.api.EventRecord(events[1], device.stream);
      ok = device.api.EventSynchronize(events[1]) == cu::Success && ok &&
           device.api.EventElapsedTime(&milliseconds, events[0], events[1]) == cu::Success;
      if (ok && round > 0 && (best < 0 || milliseconds < best)) // the first one loads code
        best = milliseconds;
    }
    for (cu::Event event : events)
      if (event)
        device.api.EventDestroy_v2(event);
    return ok ? best : -1;
  }

private:
  ConvLibrary &library;
  std::shared_ptr<Builder> origin; // what the plan is made of
  const int64_t channels;
  Builder builder;
  dnn::Descriptor plan = nullptr;
  int64_t workspace = 0;
};

/// The fastest of what cuDNN proposes for either form of the graph; the first that runs with MPT_CUDA_SEARCH=0.
std::unique_ptr<Plan> search(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &d, void *x, void *w,
                             void *y, float *sums) {
  const char *wanted = getenv("MPT_CUDA_SEARCH");
  const bool first = wanted && strcmp(wanted, "0") == 0;
  std::unique_ptr<Plan> best;
  float bestTime = -1;
  // BF16 results are summed before they are rounded, by libraries that sum FP16 and FP32 alone.
  for (bool wide : {false, true}) {
    auto origin = std::make_shared<Builder>(*library.graphs);
    dnn::Descriptor graph = graphOf(*origin, library.handle, d, wide);
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
    for (int64_t i = 0; i < count && i < mostEngines && !(first && best); ++i) {
      auto candidate = std::make_unique<Plan>(library, origin, d.oc);
      if (!isDeterministic(*origin, configs[i]) || !candidate->build(configs[i]))
        continue;
      float time = candidate->measure(device, x, w, y, sums);
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

} // namespace

std::shared_ptr<ConvWithSums> mpt::rt::planConvWithSums(CudaDevice &device, ConvLibrary &library,
                                                        const mpt_conv_desc &d, void *x, void *w, void *y,
                                                        float *sums) {
  if (!library.graphs || d.kind != MPT_CONV_FORWARD || d.groups != 1 || d.w_type != d.x_type || d.y_type != d.x_type ||
      (d.x_type != MPT_FLOAT16 && d.x_type != MPT_BFLOAT16))
    return nullptr;
  for (const void *pointer : {x, w, y, static_cast<void *>(sums)})
    if (reinterpret_cast<uintptr_t>(pointer) % alignment)
      return nullptr;
  if (d.oc * 4 % alignment)
    return nullptr;
  std::string key(reinterpret_cast<const char *>(&d), sizeof d);
  auto [known, isNew] = library.plans.try_emplace(key);
  if (isNew)
    known->second = search(device, library, d, x, w, y, sums);
  return known->second;
}
