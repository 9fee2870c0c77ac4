// SPDX-License-Identifier: Apache-2.0
// Graphs of cuDNN's with one engine for all of their operations, and convolutions that sum up their results by channel.
#ifndef MPT_RUNTIME_CUDA_CONVGRAPH_H
#define MPT_RUNTIME_CUDA_CONVGRAPH_H

#include "cuda/GraphNames.h"

#include <functional>
#include <initializer_list>

namespace mpt::rt {

namespace dnn {

struct GraphFunctions {
  Status (*BackendCreateDescriptor)(int type, Descriptor *descriptor);
  Status (*BackendDestroyDescriptor)(Descriptor descriptor);
  Status (*BackendFinalize)(Descriptor descriptor);
  Status (*BackendSetAttribute)(Descriptor descriptor, int name, int type, int64_t count, const void *elements);
  Status (*BackendGetAttribute)(Descriptor descriptor, int name, int type, int64_t wanted, int64_t *count,
                                void *elements);
  Status (*BackendExecute)(Handle handle, Descriptor plan, Descriptor pack);
};

} // namespace dnn

/// Descriptors that are destroyed together, and whether every call on them has succeeded.
class GraphMaker {
public:
  explicit GraphMaker(const dnn::GraphFunctions &api) : api(api) {}
  GraphMaker(const GraphMaker &) = delete;
  ~GraphMaker() {
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
  template <typename T> void set(dnn::Descriptor descriptor, int name, int type, const T *elements, size_t count) {
    if (!status)
      status = api.BackendSetAttribute(descriptor, name, type, static_cast<int64_t>(count), elements);
  }
  template <typename T> void set(dnn::Descriptor descriptor, int name, int type, const T &element) {
    set(descriptor, name, type, &element, 1);
  }
  void setVector(dnn::Descriptor descriptor, int name, const std::vector<int64_t> &values) {
    set(descriptor, name, dnn::Int64Type, values.data(), values.size());
  }
  /// Sets attributes of `descriptor` that are descriptors.
  void link(dnn::Descriptor descriptor, std::initializer_list<std::pair<int, dnn::Descriptor>> attributes) {
    for (auto [name, value] : attributes)
      set(descriptor, name, dnn::DescriptorsType, value);
  }
  dnn::Descriptor finish(dnn::Descriptor descriptor) {
    if (!status)
      status = api.BackendFinalize(descriptor);
    return descriptor;
  }
  /// A tensor in memory, or what only the engine sees, or a number that is given with the pointers of a run (by the
  /// address of a float on the host).
  enum class Place { Memory, Inside, Number };
  dnn::Descriptor tensor(int64_t id, int type, const std::vector<int64_t> &shape, const std::vector<int64_t> &strides,
                         Place place = Place::Memory);
  /// A channels-last tensor of `channels` and as many of the last `extents` as the convolution `d` has.
  dnn::Descriptor tensor(int64_t id, int type, const mpt_conv_desc &d, int64_t images, int64_t channels,
                         const int64_t (&extents)[3], bool isVirtual = false);
  /// One FP32 number a channel.
  dnn::Descriptor byChannel(int64_t id, const mpt_conv_desc &d, int64_t channels);
  dnn::Descriptor convolution(const mpt_conv_desc &d);
  /// y = function(x), or function(x, b): for ReluGradient, b is the gradient. Select: y = t ? x : b. Index: y's index
  /// along `axis`.
  dnn::Descriptor pointwise(dnn::PointwiseFunction function, dnn::Descriptor x, dnn::Descriptor b, dnn::Descriptor y,
                            dnn::Descriptor t = nullptr, int64_t axis = -1);
  /// The sum, or the largest, over dimensions that are 1 in y. `ordered` (cuDNN 9.11): the same bits every time, which
  /// engines' notes say nothing about.
  dnn::Descriptor reduction(dnn::Reduction function, dnn::Descriptor x, dnn::Descriptor y, bool ordered = false);
  /// c = a b by matrices of the last two dimensions, with FP32 sums; where b has fewer heads, several of a's share one.
  dnn::Descriptor gemm(dnn::Descriptor a, dnn::Descriptor b, dnn::Descriptor c);
  /// Another view of x's elements.
  dnn::Descriptor reshape(dnn::Descriptor x, dnn::Descriptor y);
  /// `handle` is null for graphs that are looked at without a device.
  dnn::Descriptor graph(dnn::Handle handle, const std::vector<dnn::Descriptor> &operations);

  const dnn::GraphFunctions &api;
  dnn::Status status = 0;

private:
  std::vector<dnn::Descriptor> owned;
};

/// An engine for a graph, ready to run.
class GraphPlan {
public:
  virtual ~GraphPlan() = default;
  /// `pointers` in the order of the ids that the plan was searched with; null for one that the graph does without.
  virtual mpt_status run(CudaDevice &device, const std::vector<void *> &pointers) = 0;
};

/// A graph, the ids of its tensors in memory, those of them that nobody wants, of `spareBytes` each (they lie in
/// scratch, behind the pointers that are given), and its numbers by id.
struct GraphForm {
  std::function<dnn::Descriptor(GraphMaker &)> make;
  std::vector<int64_t> ids;
  size_t spares = 0;
  int64_t spareBytes = 0;
  std::vector<std::pair<int64_t, float>> numbers = {};
  const char *name = "convolution with sums"; ///< for errors
};

/// The fastest deterministic engine that cuDNN has for the first of `forms` that it has one for, measured on the
/// operands (the first that runs with option search=0); null where it has none.
std::shared_ptr<GraphPlan> searchPlan(CudaDevice &device, ConvLibrary &library, const std::vector<GraphForm> &forms,
                                      const std::vector<void *> &pointers);

constexpr int64_t graphAlignment = 16; ///< of every operand

/// Whether all pointers are as graphs state; null ones are.
inline bool areAligned(const std::vector<void *> &pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void *p) { return reinterpret_cast<uintptr_t>(p) % graphAlignment == 0; });
}

/// Plans a forward convolution and, by channel, the sums of its results and of their squares. Pointers of a run: x, w,
/// y, sums, sums of squares. Null where cuDNN has no engine, or the operands are less aligned than it takes. One plan
/// serves all convolutions of one description.
std::shared_ptr<GraphPlan> planConvWithSums(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &desc,
                                            const std::vector<void *> &pointers);

/// The same for a backward-data convolution and the sums of the batch norm before it (mpt_cuda_conv_norm_sums).
/// Pointers of a run: x, w, y, the two sums, input, mean, inverse, scale, shift.
std::shared_ptr<GraphPlan> planConvWithNormSums(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &desc,
                                                const std::vector<void *> &pointers);

/// A convolution whose FP32 result is wider than its operands. Pointers of a run: x, w, y.
std::shared_ptr<GraphPlan> planWideConv(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &desc,
                                        const std::vector<void *> &pointers);
/// Whether `desc` is one that cuDNN can be asked for: of one group, and with the same padding on both sides.
bool isWideConv(const mpt_conv_desc &desc);

} // namespace mpt::rt

#endif
