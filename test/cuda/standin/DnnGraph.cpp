// The stand-in's cuDNN graphs: a convolution, and the sums of its results by channel. $MPT_STANDIN_NO_SUMS=1: no
// engine.
#include "DnnObjects.h"

#include <cstdlib>
#include <set>

using namespace standin;

dnn::Status standin::bad(const std::string &text) {
  violation("cuDNN graph: " + text);
  return 2000; // CUDNN_STATUS_BAD_PARAM
}

namespace {

struct Attribute {
  int type, least, most; // elements
  bool required = true;
};

constexpr int anyNumber = 8;

/// What each kind of descriptor takes, as the API reference lists it.
const std::map<int, std::map<int, Attribute>> &attributes() {
  using namespace dnn;
  static const std::map<int, std::map<int, Attribute>> all{
      {dnn::TensorDescriptor,
       {{TensorAlignment, {Int64Type, 1, 1}},
        {TensorDataType, {DataTypeType, 1, 1}},
        {TensorDimensions, {Int64Type, 1, anyNumber}},
        {TensorStrides, {Int64Type, 1, anyNumber}},
        {TensorId, {Int64Type, 1, 1}},
        {TensorIsVirtual, {BooleanType, 1, 1, false}}}},
      {ConvolutionDescriptor,
       {{ConvolutionCompute, {DataTypeType, 1, 1}},
        {dnn::ConvolutionMode, {ConvolutionModeType, 1, 1}},
        {ConvolutionDilations, {Int64Type, 1, anyNumber}},
        {ConvolutionStrides, {Int64Type, 1, anyNumber}},
        {ConvolutionPrePaddings, {Int64Type, 1, anyNumber}},
        {ConvolutionPostPaddings, {Int64Type, 1, anyNumber}},
        {ConvolutionSpatialDims, {Int64Type, 1, 1}}}},
      {PointwiseDescriptor,
       {{dnn::PointwiseMode, {PointwiseModeType, 1, 1}}, {PointwisePrecision, {DataTypeType, 1, 1}}}},
      {ForwardDescriptor,
       {{ForwardX, {DescriptorsType, 1, 1}},
        {ForwardW, {DescriptorsType, 1, 1}},
        {ForwardY, {DescriptorsType, 1, 1}},
        {ForwardConvolution, {DescriptorsType, 1, 1}},
        {ForwardAlpha, {FloatType, 1, 1}},
        {ForwardBeta, {FloatType, 1, 1}}}},
      {PointwiseOperationDescriptor,
       {{PointwiseDescriptorOf, {DescriptorsType, 1, 1}},
        {PointwiseX, {DescriptorsType, 1, 1}},
        {PointwiseB, {DescriptorsType, 1, 1, false}},
        {PointwiseY, {DescriptorsType, 1, 1, false}},
        {PointwiseGradientX, {DescriptorsType, 1, 1, false}},
        {PointwiseGradientY, {DescriptorsType, 1, 1, false}}}},
      {BackwardDataDescriptor,
       {{BackwardDataX, {DescriptorsType, 1, 1}},
        {BackwardDataW, {DescriptorsType, 1, 1}},
        {BackwardDataY, {DescriptorsType, 1, 1}},
        {BackwardDataConvolution, {DescriptorsType, 1, 1}},
        {BackwardDataAlpha, {FloatType, 1, 1}},
        {BackwardDataBeta, {FloatType, 1, 1}}}},
      {ReductionDescriptor, {{ReductionOperator, {ReductionType, 1, 1}}, {ReductionPrecision, {DataTypeType, 1, 1}}}},
      {ReductionOperationDescriptor,
       {{ReductionX, {DescriptorsType, 1, 1}},
        {ReductionY, {DescriptorsType, 1, 1}},
        {ReductionDescriptorOf, {DescriptorsType, 1, 1}}}},
      {NormWeightsDescriptor,
       {{NormPrecision, {DataTypeType, 1, 1}},
        {NormMean, {DescriptorsType, 1, 1}},
        {NormInverse, {DescriptorsType, 1, 1}},
        {NormScale, {DescriptorsType, 1, 1}},
        {NormX, {DescriptorsType, 1, 1}},
        {NormGradient, {DescriptorsType, 1, 1}},
        {NormScaleSum, {DescriptorsType, 1, 1}},
        {NormShiftSum, {DescriptorsType, 1, 1}},
        {NormApplyGradient, {DescriptorsType, 1, 1}},
        {NormApplyX, {DescriptorsType, 1, 1}},
        {NormApplyShift, {DescriptorsType, 1, 1}}}},
      {StatisticsDescriptor,
       {{dnn::StatisticsMode, {StatisticsModeType, 1, 1}},
        {StatisticsPrecision, {DataTypeType, 1, 1}},
        {StatisticsX, {DescriptorsType, 1, 1}},
        {StatisticsSum, {DescriptorsType, 1, 1}},
        {StatisticsSquares, {DescriptorsType, 1, 1}}}},
      {GraphDescriptor, {{GraphHandle, {HandleType, 1, 1, false}}, {GraphOperations, {DescriptorsType, 1, 16}}}},
      {HeuristicDescriptor,
       {{HeuristicGraph, {DescriptorsType, 1, 1}}, {dnn::HeuristicMode, {HeuristicModeType, 1, 1}}}},
      {EngineConfigDescriptor, {}},
      {EngineDescriptor, {}},
      {PlanDescriptor, {{PlanHandle, {HandleType, 1, 1, false}}, {PlanConfig, {DescriptorsType, 1, 1}}}},
      {PackDescriptor,
       {{PackIds, {Int64Type, 1, 64}}, {PackPointers, {PointerType, 1, 64}}, {PackWorkspace, {PointerType, 1, 1}}}}};
  return all;
}

size_t bytesOf(int attributeType) {
  switch (attributeType) {
  case dnn::Int64Type:
  case dnn::HandleType:
  case dnn::PointerType:
  case dnn::DescriptorsType:
    return 8;
  case dnn::BooleanType:
    return 1;
  default:
    return 4;
  }
}

std::set<void *> live;
constexpr dnn::Status badParameter = 2000, notSupported = 3000;
constexpr size_t workspaceBytes = 1 << 16;

Object *find(dnn::Descriptor descriptor, int kind = -1) {
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

/// The operations of a graph, in the one form that there is an engine for.
struct Pattern {
  Object *forward = nullptr, *round = nullptr, *statistics = nullptr;

  explicit Pattern(const Object &graph) {
    for (void *operation : graph.all<void *>(dnn::GraphOperations)) {
      auto *object = static_cast<Object *>(operation);
      (object->kind == dnn::ForwardDescriptor              ? forward
       : object->kind == dnn::PointwiseOperationDescriptor ? round
                                                           : statistics) = object;
    }
  }
  Object *x() const { return forward->ref(dnn::ForwardX); }
  Object *w() const { return forward->ref(dnn::ForwardW); }
  Object *raw() const { return forward->ref(dnn::ForwardY); }
  Object *y() const { return round ? round->ref(dnn::PointwiseY) : raw(); }
  Object *sum() const { return statistics->ref(dnn::StatisticsSum); }
  Object *squares() const { return statistics->ref(dnn::StatisticsSquares); }
  std::vector<Object *> inMemory() const { return {x(), w(), y(), sum(), squares()}; }

  /// What the guide to the runtime fusion engines lists for a convolution followed by statistics.
  bool hasEngine() const {
    if (!forward || !statistics || statistics->ref(dnn::StatisticsX) != raw() ||
        (round && round->ref(dnn::PointwiseX) != raw()) || raw()->isVirtual() != (round != nullptr))
      return false;
    bool types = x()->type() == w()->type() && (x()->type() == dnn::Half || x()->type() == dnn::BFloat16) &&
                 y()->type() == x()->type() && (raw()->type() == dnn::Half || raw()->type() == dnn::Float) &&
                 sum()->type() == dnn::Float && squares()->type() == dnn::Float;
    for (const Object *tensor : {x(), w(), y(), raw(), sum(), squares()})
      types = types && isChannelsLast(*tensor);
    return types && x()->dims()[1] % 8 == 0 && y()->dims()[1] % 8 == 0;
  }
  Problem problem() const {
    Problem p = problemOf(*x(), *w(), *raw(), *forward->ref(dnn::ForwardConvolution));
    p.y.type = p.x.type; // sums are FP32 in either case
    return p;
  }
};

/// What a descriptor's own rules say once all attributes are there.
dnn::Status check(Object &object) {
  switch (object.kind) {
  case dnn::TensorDescriptor: {
    std::vector<int64_t> dims = object.dims();
    int64_t alignment = object.one<int64_t>(dnn::TensorAlignment);
    if (dims.size() != object.all<int64_t>(dnn::TensorStrides).size() || dims.size() < 4 || dims.size() > 5)
      return bad("a tensor of " + std::to_string(dims.size()) + " dimensions and another number of strides");
    for (int64_t extent : dims)
      if (extent <= 0)
        return bad("a tensor without elements");
    return alignment > 0 && (alignment & (alignment - 1)) == 0 ? 0 : bad("an alignment that is no power of two");
  }
  case dnn::ConvolutionDescriptor: {
    auto dims = static_cast<size_t>(object.one<int64_t>(dnn::ConvolutionSpatialDims));
    for (int name : {dnn::ConvolutionDilations, dnn::ConvolutionStrides, dnn::ConvolutionPrePaddings,
                     dnn::ConvolutionPostPaddings})
      if (object.all<int64_t>(name).size() != dims)
        return bad("a convolution's attribute of another rank");
    if (object.all<int64_t>(dnn::ConvolutionPrePaddings) != object.all<int64_t>(dnn::ConvolutionPostPaddings))
      return bad("paddings that differ between sides");
    return 0;
  }
  case dnn::ForwardDescriptor:
    return object.one<float>(dnn::ForwardAlpha) == 1 && object.one<float>(dnn::ForwardBeta) == 0 ? 0 : bad("factors");
  case dnn::BackwardDataDescriptor:
    return object.one<float>(dnn::BackwardDataAlpha) == 1 && object.one<float>(dnn::BackwardDataBeta) == 0
               ? 0
               : bad("factors");
  case dnn::StatisticsDescriptor: {
    std::vector<int64_t> x = object.ref(dnn::StatisticsX)->dims(), expected(x.size(), 1);
    expected[1] = x[1];
    for (int name : {dnn::StatisticsSum, dnn::StatisticsSquares})
      if (object.ref(name)->dims() != expected)
        return bad("sums that are not one a channel");
    return object.one<int>(dnn::StatisticsPrecision, -1) == dnn::Float ? 0 : bad("sums in another type than FP32");
  }
  case dnn::GraphDescriptor: {
    GradientGraph gradient(object);
    if (gradient.convolution())
      return gradient.fits() ? 0 : bad("descriptions that do not fit together");
    Pattern pattern(object);
    if (!pattern.forward)
      return bad("a graph without a convolution");
    std::map<int64_t, Object *> ids;
    for (Object *tensor : {pattern.x(), pattern.w(), pattern.raw(), pattern.y()})
      if (Object *&known = ids[tensor->id()]; known && known != tensor)
        return bad("two tensors of one number");
      else
        known = tensor;
    if (pattern.y()->isVirtual())
      return bad("a result that is not in memory");
    return pattern.problem().fits() ? 0 : bad("descriptions that do not fit together");
  }
  case dnn::PackDescriptor:
    return object.all<int64_t>(dnn::PackIds).size() == object.all<void *>(dnn::PackPointers).size()
               ? 0
               : bad("numbers and pointers of different count");
  case dnn::HeuristicDescriptor: {
    GradientGraph gradient(*object.ref(dnn::HeuristicGraph));
    bool has = gradient.convolution() ? gradient.hasEngine() : Pattern(*object.ref(dnn::HeuristicGraph)).hasEngine();
    return has && !getenv("MPT_STANDIN_NO_SUMS") ? 0 : notSupported;
  }
  case dnn::PointwiseOperationDescriptor: {
    bool two = object.values.count(dnn::PointwiseB), gradient = object.values.count(dnn::PointwiseGradientX);
    int mode = object.ref(dnn::PointwiseDescriptorOf)->one<int>(dnn::PointwiseMode, -1);
    bool ok = gradient ? mode == dnn::ReluGradient && object.values.count(dnn::PointwiseGradientY) && !two &&
                             !object.values.count(dnn::PointwiseY)
              : two    ? mode == dnn::Add || mode == dnn::Multiply || mode == dnn::Subtract
                       : mode == dnn::Identity;
    return ok && (gradient || object.values.count(dnn::PointwiseY)) ? 0 : bad("a pointwise operation's operands");
  }
  case dnn::ReductionOperationDescriptor: {
    std::vector<int64_t> x = object.ref(dnn::ReductionX)->dims(), y = object.ref(dnn::ReductionY)->dims();
    bool ok = x.size() == y.size();
    for (size_t i = 0; ok && i < x.size(); ++i)
      ok = y[i] == 1 || y[i] == x[i];
    return ok ? 0 : bad("a reduction to other dimensions");
  }
  default:
    return 0;
  }
}

/// The numbers that a graph leaves: sums in FP32, image by image.
void compute(const Pattern &pattern, const std::map<int64_t, void *> &host) {
  Problem p = pattern.problem();
  Type type{}, summed{};
  if (!typeOf(p.x.type, type) || !typeOf(pattern.raw()->type(), summed))
    return violation("cuDNN graph: an unknown type");
  void *x = host.at(pattern.x()->id()), *w = host.at(pattern.w()->id()), *y = host.at(pattern.y()->id());
  std::vector<float> results(static_cast<size_t>(Problem::elements(p.y.extents, p.y.rank)));
  forEachTerm(p, [&](int64_t xAt, int64_t wAt, int64_t yAt) {
    results[static_cast<size_t>(yAt)] +=
        static_cast<float>(load(type, x, xAt)) * static_cast<float>(load(type, w, wAt));
  });
  auto channels = static_cast<size_t>(p.y.extents[1]), images = static_cast<size_t>(p.y.extents[0]);
  size_t image = results.size() / images;
  std::vector<float> sums(2 * channels);
  for (size_t n = 0; n < images; ++n) {
    std::vector<float> own(2 * channels);
    for (size_t i = n * image; i < (n + 1) * image; ++i) {
      store(type, y, static_cast<int64_t>(i), static_cast<double>(results[i]));
      float value = summed == Type::F32 ? results[i] : static_cast<float>(load(type, y, static_cast<int64_t>(i)));
      own[i % channels] += value;
      own[channels + i % channels] += value * value;
    }
    for (size_t c = 0; c < own.size(); ++c)
      sums[c] += own[c];
  }
  memcpy(host.at(pattern.sum()->id()), sums.data(), channels * 4);
  memcpy(host.at(pattern.squares()->id()), sums.data() + channels, channels * 4);
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT dnn::Status cudnnBackendCreateDescriptor(int kind, dnn::Descriptor *out) {
  if (!attributes().count(kind))
    return bad("an unknown kind of descriptor");
  *out = new Object;
  static_cast<Object *>(*out)->kind = kind;
  live.insert(*out);
  return 0;
}
EXPORT dnn::Status cudnnBackendDestroyDescriptor(dnn::Descriptor descriptor) {
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
  dnn::Status status = check(*object);
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
    // Two engines: a fast one whose sums depend on the order of atomic additions, and one that is deterministic.
    *count = std::min<int64_t>(wanted, 2);
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
    engine->finished = true;
    *count = 1;
    return 0;
  }
  if (asked(dnn::EngineDescriptor, dnn::EngineNotes, dnn::NumericalNoteType) && wanted >= 2) {
    auto *notes = static_cast<int *>(elements);
    notes[0] = 0; // tensor cores
    notes[1] = dnn::NoteNondeterministic;
    *count = object->engine == 0 ? 2 : 1;
    return 0;
  }
  if (asked(dnn::PlanDescriptor, dnn::PlanWorkspace, dnn::Int64Type) && wanted == 1) {
    *static_cast<int64_t *>(elements) = workspaceBytes;
    *count = 1;
    return 0;
  }
  return bad("a question for attribute " + std::to_string(name));
}
EXPORT dnn::Status cudnnBackendExecute(dnn::Handle, dnn::Descriptor planned, dnn::Descriptor given) {
  Object *plan = find(planned, dnn::PlanDescriptor), *pack = find(given, dnn::PackDescriptor);
  if (!plan || !pack || !plan->finished || !pack->finished)
    return bad("a plan or pointers that are not finished");
  Object *config = find(plan->ref(dnn::PlanConfig), dnn::EngineConfigDescriptor);
  if (!config || !find(config->graph, dnn::GraphDescriptor))
    return bad("a plan whose graph is gone");
  if (config->engine != 1)
    return bad("an engine that may differ from run to run");
  GradientGraph gradient(*config->graph);
  Pattern pattern(*config->graph);
  const bool backward = gradient.convolution() != nullptr;
  std::map<int64_t, uint64_t> pointers;
  std::vector<int64_t> ids = pack->all<int64_t>(dnn::PackIds);
  std::vector<void *> values = pack->all<void *>(dnn::PackPointers);
  for (size_t i = 0; i < ids.size(); ++i)
    pointers[ids[i]] = reinterpret_cast<uint64_t>(values[i]);
  std::string text = backward ? "convolution with norm's sums type " +
                                    std::to_string(gradient.convolution()->ref(dnn::BackwardDataW)->type()) + " by " +
                                    std::to_string(gradient.operations.back()->kind)
                              : "convolution with sums type " + std::to_string(pattern.x()->type()) + " summed as " +
                                    std::to_string(pattern.raw()->type());
  std::map<int64_t, int64_t> bytes;
  for (Object *tensor : backward ? gradient.inMemory() : pattern.inMemory()) {
    auto at = pointers.find(tensor->id());
    if (at == pointers.end() || !at->second)
      return bad("no pointer for tensor " + std::to_string(tensor->id()));
    if (at->second % static_cast<uint64_t>(tensor->one<int64_t>(dnn::TensorAlignment)))
      return bad("a pointer that is not aligned as its tensor says");
    int64_t count = tensor->type() == dnn::Float ? 4 : 2;
    text += ",";
    for (int64_t extent : tensor->dims()) {
      count *= extent;
      text += " " + std::to_string(extent);
    }
    bytes[tensor->id()] = count;
  }
  note(text);
  auto workspace = reinterpret_cast<uint64_t>(pack->one<void *>(dnn::PackWorkspace));
  // The graph may be run again when the descriptors that it was recorded with are gone: only its own stay.
  enqueue(dnnStream, standin::Kind::Convolution, [=] {
    if (!live.count(planned))
      return violation("cuDNN graph: run after its plan was destroyed");
    std::map<int64_t, void *> host;
    bool all = translate(workspace, workspaceBytes, "convolution with sums, workspace");
    for (auto [id, size] : bytes)
      all = (host[id] = translate(pointers.at(id), size, "convolution with sums")) && all;
    if (all)
      backward ? gradient.compute(host) : compute(pattern, host);
  });
  return 0;
}
