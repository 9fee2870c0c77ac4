// SPDX-License-Identifier: Apache-2.0
// cuDNN's graph interface, and graphs as they are put together.
#ifndef MPT_RUNTIME_CUDA_GRAPHMAKER_H
#define MPT_RUNTIME_CUDA_GRAPHMAKER_H

#include "cuda/GraphNames.h"

#include <initializer_list>
#include <vector>

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

constexpr int64_t graphAlignment = 16; ///< of every operand

/// Descriptors that are destroyed together, and whether every call on them has succeeded.
class GraphMaker {
public:
  /// `handle` is null for graphs that are looked at without a device.
  explicit GraphMaker(const dnn::GraphFunctions &api, dnn::Handle handle = nullptr) : api(api), handle(handle) {}
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
  /// A tensor in memory, or one that only the engine sees, or a number that is given with the pointers of a run (by the
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
  /// The sum, or the largest, over dimensions that are 1 in y. `ordered` (cuDNN 9.11): deterministic, which
  /// engines' notes do not tell.
  dnn::Descriptor reduction(dnn::Reduction function, dnn::Descriptor x, dnn::Descriptor y, bool ordered = false);
  /// c = a b by matrices of the last two dimensions, with FP32 sums; where b has fewer heads, several of a's share one.
  dnn::Descriptor gemm(dnn::Descriptor a, dnn::Descriptor b, dnn::Descriptor c);
  /// Another view of x's elements.
  dnn::Descriptor reshape(dnn::Descriptor x, dnn::Descriptor y);
  dnn::Descriptor graph(const std::vector<dnn::Descriptor> &operations);

  const dnn::GraphFunctions &api;
  const dnn::Handle handle;
  dnn::Status status = 0;

private:
  std::vector<dnn::Descriptor> owned;
};

} // namespace mpt::rt

#endif
