// SPDX-License-Identifier: Apache-2.0
// The fake cuDNN's graphs: descriptors, engines and plans of the graphs of DnnPlain.cpp, DnnStatistics.cpp,
// DnnGradient.cpp and DnnAttention.cpp. $MPT_STANDIN_NO_SUMS=1 ...: no engine. $MPT_STANDIN_PLAN_MS: how long a plan
// takes. $MPT_STANDIN_FASTEST_ENGINE: the fastest of the exact ones.
#include "DnnObjects.h"

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

using namespace standin;

dnn::Status standin::bad(const std::string &text) {
  violation("cuDNN graph: " + text);
  return 2000; // CUDNN_STATUS_BAD_PARAM
}

namespace {

std::recursive_mutex lock;
std::set<void *> live;
constexpr dnn::Status badParameter = 2000, notSupported = 3000;
constexpr int exactEngine = 4, exactEngines = 12; // the first of them, and how many

int64_t environment(const char *variable, int64_t otherwise) {
  const char *given = getenv(variable);
  return given ? atoll(given) : otherwise;
}

/// A handle while one call uses it.
class InUse {
public:
  explicit InUse(dnn::Handle of) : handle(reinterpret_cast<DnnHandle *>(of)) {
    if (handle && handle->busy.exchange(true))
      bad("a handle that two threads use at a time");
  }
  InUse(const InUse &) = delete;
  ~InUse() {
    if (handle)
      handle->busy = false;
  }

private:
  DnnHandle *const handle;
};

Object *find(dnn::Descriptor descriptor, int kind = -1) {
  std::lock_guard guard(lock);
  if (!live.count(descriptor)) {
    bad("a descriptor that does not exist, or no more");
    return nullptr;
  }
  auto *object = static_cast<Object *>(descriptor);
  if (kind >= 0 && object->kind != kind) {
    bad("descriptor of kind " + std::to_string(object->kind) + " where one of kind " + std::to_string(kind) +
        " belongs");
    return nullptr;
  }
  return object;
}

// The rules of each kind of descriptor: 0, or the fault.

dnn::Status checkTensor(const Object &object) {
  std::vector<int64_t> dims = object.dims();
  int64_t alignment = object.one<int64_t>(dnn::TensorAlignment);
  if (dims.size() != object.all<int64_t>(dnn::TensorStrides).size() || dims.size() < 4 || dims.size() > 5)
    return bad("a tensor of " + std::to_string(dims.size()) + " dimensions and another number of strides");
  for (int64_t extent : dims)
    if (extent <= 0)
      return bad("a tensor without elements");
  return alignment > 0 && (alignment & (alignment - 1)) == 0 ? 0 : bad("an alignment that is no power of two");
}

dnn::Status checkConvolution(const Object &object) {
  auto dims = static_cast<size_t>(object.one<int64_t>(dnn::ConvolutionSpatialDims));
  for (int name :
       {dnn::ConvolutionDilations, dnn::ConvolutionStrides, dnn::ConvolutionPrePaddings, dnn::ConvolutionPostPaddings})
    if (object.all<int64_t>(name).size() != dims)
      return bad("a convolution's attribute of another rank");
  if (object.all<int64_t>(dnn::ConvolutionPrePaddings) != object.all<int64_t>(dnn::ConvolutionPostPaddings))
    return bad("paddings that differ between sides");
  return 0;
}

dnn::Status checkStatistics(const Object &object) {
  std::vector<int64_t> x = object.ref(dnn::StatisticsX)->dims(), expected(x.size(), 1);
  expected[1] = x[1];
  for (int name : {dnn::StatisticsSum, dnn::StatisticsSquares})
    if (object.ref(name)->dims() != expected)
      return bad("sums that are not one a channel");
  return object.one<int>(dnn::StatisticsPrecision, -1) == dnn::Float ? 0 : bad("sums in another type than FP32");
}

dnn::Status checkGraph(const Object &object) {
  std::unique_ptr<Graph> graph = graphOf(object);
  if (!graph)
    return bad("a graph of no known kind");
  return graph->fits() ? 0 : bad("descriptions that do not fit together");
}

dnn::Status checkPointwise(const Object &object) {
  bool two = object.values.count(dnn::PointwiseB), gradient = object.values.count(dnn::PointwiseGradientX);
  bool hasY = object.values.count(dnn::PointwiseY);
  const Object &settings = *object.ref(dnn::PointwiseDescriptorOf);
  int mode = settings.one<int>(dnn::PointwiseMode, -1), precision = settings.one<int>(dnn::PointwisePrecision, -1);
  if (object.values.count(dnn::PointwiseT) != (mode == dnn::Select) ||
      settings.values.count(dnn::PointwiseAxis) != (mode == dnn::Index) ||
      precision != (mode == dnn::GreaterOrEqual ? int(dnn::Boolean) : int(dnn::Float)))
    return bad("a pointwise operation's settings");
  const std::set<int> ofOne{dnn::Identity, dnn::Exponential, dnn::Logarithm, dnn::Index};
  const std::set<int> ofTwo{dnn::Add, dnn::Multiply, dnn::Subtract, dnn::Divide, dnn::GreaterOrEqual, dnn::Select};
  bool ok = gradient ? mode == dnn::ReluGradient && object.values.count(dnn::PointwiseGradientY) && !two && !hasY
                     : (two ? ofTwo : ofOne).count(mode) && hasY;
  return ok ? 0 : bad("a pointwise operation's operands");
}

dnn::Status checkReduction(const Object &object) {
  std::vector<int64_t> x = object.ref(dnn::ReductionX)->dims(), y = object.ref(dnn::ReductionY)->dims();
  bool ok = x.size() == y.size();
  for (size_t i = 0; ok && i < x.size(); ++i)
    ok = x[i] % y[i] == 0; // several heads may go to one
  return ok ? 0 : bad("a reduction to other dimensions");
}

/// A descriptor's own rules, checked once all attributes are there.
dnn::Status check(const Object &object) {
  auto isOne = [&](int alpha, int beta) { return object.one<float>(alpha) == 1 && object.one<float>(beta) == 0; };
  switch (object.kind) {
  case dnn::TensorDescriptor:
    return checkTensor(object);
  case dnn::ConvolutionDescriptor:
    return checkConvolution(object);
  case dnn::ForwardDescriptor:
    return isOne(dnn::ForwardAlpha, dnn::ForwardBeta) ? 0 : bad("factors");
  case dnn::BackwardDataDescriptor:
    return isOne(dnn::BackwardDataAlpha, dnn::BackwardDataBeta) ? 0 : bad("factors");
  case dnn::StatisticsDescriptor:
    return checkStatistics(object);
  case dnn::GraphDescriptor:
    return checkGraph(object);
  case dnn::PackDescriptor:
    return object.all<int64_t>(dnn::PackIds).size() == object.all<void *>(dnn::PackPointers).size()
               ? 0
               : bad("numbers and pointers of different count");
  case dnn::HeuristicDescriptor: {
    std::unique_ptr<Graph> graph = graphOf(*object.ref(dnn::HeuristicGraph));
    return graph->hasEngine() && !getenv(graph->refusal()) ? 0 : notSupported;
  }
  case dnn::PointwiseOperationDescriptor:
    return checkPointwise(object);
  case dnn::ReductionOperationDescriptor:
    return checkReduction(object);
  default:
    return 0;
  }
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT dnn::Status cudnnBackendCreateDescriptor(int kind, dnn::Descriptor *out) {
  if (!attributes().count(kind))
    return bad("an unknown kind of descriptor");
  *out = new Object;
  static_cast<Object *>(*out)->kind = kind;
  std::lock_guard guard(lock);
  live.insert(*out);
  return 0;
}
EXPORT dnn::Status cudnnBackendDestroyDescriptor(dnn::Descriptor descriptor) {
  std::lock_guard guard(lock);
  if (Object *object = find(descriptor)) {
    live.erase(descriptor);
    delete object;
  }
  return 0;
}
EXPORT dnn::Status cudnnBackendSetAttribute(dnn::Descriptor descriptor, int name, int type, int64_t count,
                                            const void *elements) {
  Object *object = find(descriptor);
  if (!object)
    return badParameter;
  const auto &known = attributes().at(object->kind);
  auto it = known.find(name);
  std::string what = "attribute " + std::to_string(name) + " of a descriptor of kind " + std::to_string(object->kind);
  if (object->finished)
    return bad(what + " set after it was finished");
  if (it == known.end())
    return bad(what + ", which has none of that name");
  if (it->second.type != type || count < it->second.least || count > it->second.most || !elements)
    return bad(what + " of another type or count");
  if (type == dnn::DescriptorsType)
    for (int64_t i = 0; i < count; ++i) {
      Object *value = find(static_cast<void *const *>(elements)[i]);
      if (!value || !value->finished)
        return bad(what + " is not finished");
    }
  auto *bytes = static_cast<const char *>(elements);
  object->values[name].assign(bytes, bytes + static_cast<size_t>(count) * bytesOf(type));
  return 0;
}
EXPORT dnn::Status cudnnBackendFinalize(dnn::Descriptor descriptor) {
  Object *object = find(descriptor);
  if (!object)
    return badParameter;
  if (object->kind != dnn::PackDescriptor && forbidWhileCapturing("describing a convolution"))
    return notSupported;
  for (const auto &[name, attribute] : attributes().at(object->kind))
    if (attribute.required && !object->values.count(name))
      return bad("no attribute " + std::to_string(name) + " in a descriptor of kind " + std::to_string(object->kind));
  InUse use(
      object->one<dnn::Handle>(object->kind == dnn::PlanDescriptor ? int(dnn::PlanHandle) : int(dnn::GraphHandle)));
  dnn::Status status = check(*object);
  if (object->kind == dnn::PlanDescriptor)
    std::this_thread::sleep_for(std::chrono::milliseconds(environment("MPT_STANDIN_PLAN_MS", 0)));
  object->finished = !status;
  return status;
}
EXPORT dnn::Status cudnnBackendGetAttribute(dnn::Descriptor descriptor, int name, int type, int64_t wanted,
                                            int64_t *count, void *elements) {
  Object *object = find(descriptor);
  if (!object || !object->finished)
    return bad("a question to a descriptor that is not finished");
  auto asked = [&](int kind, int attribute, int expected) {
    return object->kind == kind && name == attribute && type == expected;
  };
  if (asked(dnn::HeuristicDescriptor, dnn::HeuristicResults, dnn::DescriptorsType)) {
    // Engines from the fastest on: sums that depend on the order of atomic additions, sums in 16 bits, operands that
    // are rounded first, operands that are transformed or pass through Tensor Cores in FP32, and none of these.
    *count = std::min<int64_t>(wanted, exactEngine + exactEngines);
    for (int i = 0; i < *count; ++i) {
      Object *config = find(static_cast<void **>(elements)[i], dnn::EngineConfigDescriptor);
      if (!config)
        return badParameter;
      config->graph = object->ref(dnn::HeuristicGraph);
      config->engine = i;
      config->finished = true;
    }
    return 0;
  }
  if (asked(dnn::EngineConfigDescriptor, dnn::ConfigEngine, dnn::DescriptorsType) && wanted == 1) {
    Object *engine = find(*static_cast<void **>(elements), dnn::EngineDescriptor);
    if (!engine)
      return badParameter;
    engine->engine = object->engine;
    engine->graph = object->graph;
    engine->finished = true;
    *count = 1;
    return 0;
  }
  if (asked(dnn::EngineDescriptor, dnn::EngineNotes, dnn::NumericalNoteType) && wanted >= 2) {
    constexpr dnn::NumericalNote second[] = {dnn::NoteNondeterministic, dnn::NoteNarrowSums, dnn::NoteDownConvert};
    auto *notes = static_cast<int *>(elements);
    const bool single = graphOf(*object->graph)->single();
    *count = 0;
    if (!single || object->engine == exactEngine - 1)
      notes[(*count)++] = dnn::NoteTensorCore;
    if (object->engine < exactEngine - 1)
      notes[(*count)++] = second[object->engine];
    else if (object->engine < exactEngine && !single)
      notes[(*count)++] = dnn::NoteLastWinograd;
    return 0;
  }
  if (asked(dnn::EngineDescriptor, dnn::EngineIndex, dnn::Int64Type) && wanted == 1) {
    *static_cast<int64_t *>(elements) = object->engine / 2;
    *count = 1;
    return 0;
  }
  if (asked(dnn::EngineConfigDescriptor, dnn::ConfigKnobs, dnn::DescriptorsType)) { // one knob
    *count = 1;
    Object *choice = find(*static_cast<void **>(elements), dnn::KnobDescriptor);
    if (!choice)
      return badParameter;
    choice->knob = object->engine % 2;
    choice->finished = true;
    return 0;
  }
  if (asked(dnn::KnobDescriptor, dnn::KnobType, dnn::KnobTypeType) && wanted == 1) {
    *static_cast<int *>(elements) = 2;
    *count = 1;
    return 0;
  }
  if (asked(dnn::KnobDescriptor, dnn::KnobValue, dnn::Int64Type) && wanted == 1) {
    *static_cast<int64_t *>(elements) = object->knob;
    *count = 1;
    return 0;
  }
  if (asked(dnn::PlanDescriptor, dnn::PlanWorkspace, dnn::Int64Type) && wanted == 1) {
    *static_cast<int64_t *>(elements) =
        graphOf(*find(object->ref(dnn::PlanConfig), dnn::EngineConfigDescriptor)->graph)->workspaceBytes();
    *count = 1;
    return 0;
  }
  return bad("a question for attribute " + std::to_string(name));
}
EXPORT dnn::Status cudnnBackendExecute(dnn::Handle handle, dnn::Descriptor planned, dnn::Descriptor given) {
  InUse use(handle);
  if (refusesCapture("cudnn"))
    return notSupported;
  Object *plan = find(planned, dnn::PlanDescriptor), *pack = find(given, dnn::PackDescriptor);
  if (!plan || !pack || !plan->finished || !pack->finished)
    return bad("a plan or pointers that are not finished");
  Object *config = find(plan->ref(dnn::PlanConfig), dnn::EngineConfigDescriptor);
  if (!config || !find(config->graph, dnn::GraphDescriptor))
    return bad("a plan whose graph is gone");
  const bool rounds = graphOf(*config->graph)->single() && environment("MPT_STANDIN_TF32", 0) && config->engine >= 2;
  if (config->engine < exactEngine && !rounds)
    return bad("an engine that may differ from run to run, or rounds more than it is asked to");
  std::shared_ptr<Graph> graph = graphOf(*config->graph);
  std::map<int64_t, uint64_t> pointers;
  std::vector<int64_t> ids = pack->all<int64_t>(dnn::PackIds);
  std::vector<void *> values = pack->all<void *>(dnn::PackPointers);
  for (size_t i = 0; i < ids.size(); ++i)
    pointers[ids[i]] = reinterpret_cast<uint64_t>(values[i]);
  std::string text = graph->text();
  std::map<int64_t, float> numbers;
  std::map<int64_t, int64_t> bytes;
  for (Object *tensor : graph->inMemory()) {
    auto at = pointers.find(tensor->id());
    if (at == pointers.end() || !at->second)
      return bad("no pointer for tensor " + std::to_string(tensor->id()));
    if (tensor->isNumber()) {
      if (onDevice(at->second))
        return bad("a number by value whose address is not one on the host");
      const void *number;
      memcpy(&number, &at->second, sizeof number);
      memcpy(&numbers[tensor->id()], number, sizeof(float)); // read now, as the real one
      continue;
    }
    if (at->second % static_cast<uint64_t>(tensor->one<int64_t>(dnn::TensorAlignment)))
      return bad("a pointer that is not aligned as its tensor says");
    std::vector<int64_t> dims = tensor->dims(), strides = tensor->all<int64_t>(dnn::TensorStrides);
    int64_t last = 0;
    text += ",";
    for (size_t i = 0; i < dims.size(); ++i) {
      last += (dims[i] - 1) * strides[i];
      text += " " + std::to_string(dims[i]);
    }
    bytes[tensor->id()] = (last + 1) * (tensor->type() == dnn::Float ? 4 : 2);
  }
  note(text + ", engine " + std::to_string(config->engine - exactEngine));
  auto workspace = reinterpret_cast<uint64_t>(pack->one<void *>(dnn::PackWorkspace));
  // The graph may be run again when the descriptors that it was recorded with are gone: only its own stay.
  const double behind =
      std::abs(config->engine - exactEngine - static_cast<double>(environment("MPT_STANDIN_FASTEST_ENGINE", 0)));
  const double milliseconds = (graph->text().find("sums") == std::string::npos ? 2 : 3) * (1 + behind / 100);
  enqueue(reinterpret_cast<DnnHandle *>(handle)->stream, standin::Kind::Convolution, milliseconds, [=] {
    std::unique_lock guard(lock);
    const bool isThere = live.count(planned);
    guard.unlock();
    if (!isThere)
      return violation("cuDNN graph: run after its plan was destroyed");
    std::map<int64_t, void *> host;
    const int64_t wanted = graph->workspaceBytes();
    bool all = !wanted || translate(workspace, wanted, "cuDNN graph, workspace");
    for (auto [id, size] : bytes)
      all = (host[id] = translate(pointers.at(id), size, "cuDNN graph")) && all;
    if (all)
      graph->compute(host, numbers);
  });
  return 0;
}
