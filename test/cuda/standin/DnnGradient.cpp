// SPDX-License-Identifier: Apache-2.0
// The fake cuDNN's graphs around a backward-data convolution: operation by operation, in FP32.
#include "DnnObjects.h"

#include <algorithm>
#include <set>

using namespace standin;

namespace {

/// Attributes of operations that are tensors: read ones, written ones.
const std::map<int, std::pair<std::vector<int>, std::vector<int>>> &operands() {
  using namespace dnn;
  static const std::map<int, std::pair<std::vector<int>, std::vector<int>>> all{
      {BackwardDataDescriptor, {{BackwardDataW, BackwardDataY}, {BackwardDataX}}},
      {PointwiseOperationDescriptor,
       {{PointwiseX, PointwiseB, PointwiseT, PointwiseGradientY}, {PointwiseY, PointwiseGradientX}}},
      {MatmulOperationDescriptor, {{MatmulA, MatmulB}, {MatmulC}}},
      {ReshapeDescriptor, {{ReshapeX}, {ReshapeY}}},
      {ReductionOperationDescriptor, {{ReductionX}, {ReductionY}}},
      {NormWeightsDescriptor,
       {{NormMean, NormInverse, NormScale, NormX, NormGradient},
        {NormScaleSum, NormShiftSum, NormApplyGradient, NormApplyX, NormApplyShift}}}};
  return all;
}

/// An error for who checks: each channel has the sum of the next one.
std::vector<float> planted(std::vector<float> sums) {
  if (isWrong("norm-sums-channel"))
    std::rotate(sums.begin(), sums.begin() + 1, sums.end());
  return sums;
}

bool isByChannel(const Object &tensor) {
  std::vector<int64_t> dims = tensor.dims();
  return static_cast<size_t>(dims[1]) == elementsOf(tensor);
}

} // namespace

std::vector<Object *> standin::tensorsOf(const Object &operation, bool written) {
  std::vector<Object *> tensors;
  auto known = operands().find(operation.kind);
  if (known != operands().end())
    for (int name : written ? known->second.second : known->second.first)
      if (Object *tensor = operation.ref(name))
        tensors.push_back(tensor);
  return tensors;
}

size_t standin::elementsOf(const Object &tensor) {
  size_t count = 1;
  for (int64_t extent : tensor.dims())
    count *= static_cast<size_t>(extent);
  return count;
}

std::vector<Object *> standin::tensorsInMemory(const std::vector<Object *> &operations) {
  std::vector<Object *> tensors;
  for (const Object *operation : operations)
    for (bool written : {false, true})
      for (Object *tensor : tensorsOf(*operation, written))
        if (!tensor->isVirtual() && std::find(tensors.begin(), tensors.end(), tensor) == tensors.end())
          tensors.push_back(tensor);
  return tensors;
}

bool standin::isOrdered(const std::vector<Object *> &operations) {
  std::map<int64_t, Object *> ids;
  std::set<Object *> made;
  for (const Object *operation : operations) {
    for (bool written : {false, true})
      for (Object *tensor : tensorsOf(*operation, written)) {
        Object *&known = ids[tensor->id()];
        if ((known && known != tensor) || (written && !made.insert(tensor).second) ||
            (!written && tensor->isVirtual() && !made.count(tensor)))
          return false; // two tensors of one number, two makers, none yet
        known = tensor;
      }
  }
  return true;
}

Problem standin::problemOf(const Object &x, const Object &w, const Object &y, const Object &convolution) {
  Problem p;
  auto fill = [](auto &to, const Object &from) {
    std::vector<int64_t> dims = from.dims();
    to.type = from.type();
    to.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), to.extents);
  };
  fill(p.x, x);
  fill(p.w, w);
  fill(p.y, y);
  for (auto [to, from] : {std::pair(&p.x, &x), std::pair(&p.y, &y)}) {
    std::vector<int64_t> strides = from->all<int64_t>(dnn::TensorStrides);
    std::copy(strides.begin(), strides.end(), to->strides);
  }
  p.w.format = ChannelsLast;
  p.conv.rank = static_cast<int>(convolution.one<int64_t>(dnn::ConvolutionSpatialDims));
  p.conv.mode = convolution.one<int>(dnn::ConvolutionMode, -1);
  p.conv.compute = convolution.one<int>(dnn::ConvolutionCompute, -1);
  auto spatial = [&](int name, int *to) {
    std::vector<int64_t> values = convolution.all<int64_t>(name);
    std::copy(values.begin(), values.end(), to);
  };
  spatial(dnn::ConvolutionPrePaddings, p.conv.pads);
  spatial(dnn::ConvolutionStrides, p.conv.strides);
  spatial(dnn::ConvolutionDilations, p.conv.dilations);
  return p;
}

GradientGraph::GradientGraph(const Object &graph) {
  for (void *operation : graph.all<void *>(dnn::GraphOperations))
    operations.push_back(static_cast<Object *>(operation));
}

Object *GradientGraph::convolution() const {
  for (Object *operation : operations)
    if (operation->kind == dnn::BackwardDataDescriptor)
      return operation;
  return nullptr;
}

bool GradientGraph::fits() const {
  if (!isOrdered(operations))
    return false;
  for (const Object *operation : operations)
    if (operation->kind == dnn::PointwiseOperationDescriptor) {
      std::vector<Object *> written = tensorsOf(*operation, true);
      for (const Object *tensor : tensorsOf(*operation, false))
        if (tensor->dims() != written.front()->dims() &&
            !(isByChannel(*tensor) && tensor->dims()[1] == written.front()->dims()[1]))
          return false;
    }
  const Object &conv = *convolution();
  Problem p = problemOf(*conv.ref(dnn::BackwardDataX), *conv.ref(dnn::BackwardDataW), *conv.ref(dnn::BackwardDataY),
                        *conv.ref(dnn::BackwardDataConvolution));
  p.x.type = p.w.type;
  return p.fits();
}

bool GradientGraph::hasEngine() const {
  const Object &conv = *convolution();
  int type = conv.ref(dnn::BackwardDataW)->type(), reductions = 0, weights = 0;
  if (type != dnn::Half && type != dnn::BFloat16)
    return false;
  for (const Object *tensor : inMemory())
    if (!isChannelsLast(*tensor) || tensor->dims()[1] % 8 ||
        (tensor->type() != type && !(tensor->type() == dnn::Float && isByChannel(*tensor))))
      return false;
  for (const Object *operation : operations) {
    for (const Object *tensor : tensorsOf(*operation, true))
      if (tensor->isVirtual() && tensor->type() != dnn::Float)
        return false;
    bool reduces = operation->kind == dnn::ReductionOperationDescriptor;
    if ((reductions || weights) && !reduces)
      return false;
    reductions += reduces;
    weights += operation->kind == dnn::NormWeightsDescriptor;
    if (reduces && !operation->ref(dnn::ReductionDescriptorOf)->one<char>(dnn::ReductionIsDeterministic))
      violation("cuDNN graph: sums of channels in any order");
    if (reduces && (!operation->ref(dnn::ReductionX)->isVirtual() || !isByChannel(*operation->ref(dnn::ReductionY))))
      return false;
  }
  // dgrad, minus mean, by deviation, scaled, shifted, masked, summed: the one form that the samples show, and in FP16.
  return weights ? weights == 1 && !reductions && type == dnn::Half && operations.size() == 7 : reductions == 2;
}

std::string GradientGraph::text() const {
  return "convolution with norm's sums type " + std::to_string(convolution()->ref(dnn::BackwardDataW)->type()) +
         " by " + std::to_string(operations.back()->kind);
}

namespace {

using Numbers = std::vector<float>;

/// The tensors of a graph that runs: read from memory, or made by an operation before.
class Values {
public:
  explicit Values(const std::map<int64_t, void *> &host) : host(host) {}

  Numbers &read(const Object *tensor) {
    auto [slot, isNew] = values.try_emplace(tensor);
    Type type{};
    if (isNew && typeOf(tensor->type(), type)) {
      slot->second.resize(elementsOf(*tensor));
      for (size_t i = 0; i < slot->second.size(); ++i)
        slot->second[i] = static_cast<float>(load(type, host.at(tensor->id()), static_cast<int64_t>(i)));
    }
    return slot->second;
  }
  void write(const Object *tensor, Numbers result) {
    Type type{};
    if (!tensor->isVirtual() && typeOf(tensor->type(), type))
      for (size_t i = 0; i < result.size(); ++i) {
        store(type, host.at(tensor->id()), static_cast<int64_t>(i), static_cast<double>(result[i]));
        result[i] = static_cast<float>(load(type, host.at(tensor->id()), static_cast<int64_t>(i)));
      }
    values[tensor] = std::move(result);
  }

  void convolve(const Object &operation) {
    const Object *x = operation.ref(dnn::BackwardDataX), *w = operation.ref(dnn::BackwardDataW),
                 *y = operation.ref(dnn::BackwardDataY);
    Numbers result(elementsOf(*x)), &filters = read(w), &gradient = read(y);
    forEachTerm(problemOf(*x, *w, *y, *operation.ref(dnn::BackwardDataConvolution)), [&](int64_t xAt, int64_t wAt,
                                                                                         int64_t yAt) {
      result[static_cast<size_t>(xAt)] += filters[static_cast<size_t>(wAt)] * gradient[static_cast<size_t>(yAt)];
    });
    write(x, std::move(result));
  }

  void applyPointwise(const Object &operation) {
    int mode = operation.ref(dnn::PointwiseDescriptorOf)->one<int>(dnn::PointwiseMode, -1);
    const Object *result = tensorsOf(operation, true).front();
    const Object *second = operation.ref(mode == dnn::ReluGradient ? dnn::PointwiseGradientY : dnn::PointwiseB);
    Numbers out(elementsOf(*result)), &a = read(operation.ref(dnn::PointwiseX)), none,
                                      &b = second ? read(second) : none;
    for (size_t i = 0; i < out.size(); ++i) {
      float x = a[i % a.size()], y = second ? b[i % b.size()] : 0; // channels are innermost
      out[i] = mode == dnn::Add            ? x + y
               : mode == dnn::Subtract     ? x - y
               : mode == dnn::Multiply     ? x * y
               : mode == dnn::ReluGradient ? (x > 0 ? y : 0)
                                           : x;
    }
    write(result, std::move(out));
  }

  void reduce(const Object &operation) {
    const Object *result = operation.ref(dnn::ReductionY);
    Numbers sums(elementsOf(*result)), &x = read(operation.ref(dnn::ReductionX));
    for (size_t i = 0; i < x.size(); ++i)
      sums[i % sums.size()] += x[i];
    write(result, planted(std::move(sums)));
  }

  void sumForNorm(const Object &operation) {
    auto ref = [&](int name) -> Numbers & { return read(operation.ref(name)); };
    Numbers &x = ref(dnn::NormX), &g = ref(dnn::NormGradient), &mean = ref(dnn::NormMean),
            &inverse = ref(dnn::NormInverse);
    size_t channels = mean.size();
    Numbers sum(channels), other(channels);
    for (size_t i = 0; i < g.size(); ++i) {
      size_t c = i % channels;
      sum[c] += g[i];
      other[c] += g[i] * ((x[i] - mean[c]) * inverse[c]);
    }
    // dx = apply gradient * g + apply x * x + apply shift
    const size_t elements = g.size() / channels;
    float count = static_cast<float>(elements);
    Numbers byG(channels), byX(channels), shift(channels), &scale = ref(dnn::NormScale);
    for (size_t c = 0; c < channels; ++c) {
      byG[c] = scale[c] * inverse[c];
      byX[c] = -byG[c] * inverse[c] * other[c] / count;
      shift[c] = -byG[c] * sum[c] / count - byX[c] * mean[c];
    }
    write(operation.ref(dnn::NormScaleSum), planted(std::move(other)));
    write(operation.ref(dnn::NormShiftSum), std::move(sum));
    write(operation.ref(dnn::NormApplyGradient), std::move(byG));
    write(operation.ref(dnn::NormApplyX), std::move(byX));
    write(operation.ref(dnn::NormApplyShift), std::move(shift));
  }

private:
  const std::map<int64_t, void *> &host;
  std::map<const Object *, Numbers> values;
};

} // namespace

void GradientGraph::compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &) const {
  Values values(host);
  for (const Object *operation : operations)
    switch (operation->kind) {
    case dnn::BackwardDataDescriptor:
      values.convolve(*operation);
      break;
    case dnn::PointwiseOperationDescriptor:
      values.applyPointwise(*operation);
      break;
    case dnn::ReductionOperationDescriptor:
      values.reduce(*operation);
      break;
    default:
      values.sumForNorm(*operation);
    }
}
