// SPDX-License-Identifier: Apache-2.0
// Descriptors of the fake cuDNN's graphs.
#ifndef MPT_TEST_CUDA_STANDIN_DNNOBJECTS_H
#define MPT_TEST_CUDA_STANDIN_DNNOBJECTS_H

#include "Dnn.h"

#include "cuda/ConvGraph.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace standin {

struct Object {
  int kind = -1;
  bool finished = false;
  std::map<int, std::vector<char>> values;
  Object *graph = nullptr; // of engines and their configurations
  int engine = -1;
  int knob = 0; // of a knob's choice: its value

  template <typename T> std::vector<T> all(int name) const {
    auto it = values.find(name);
    std::vector<T> out(it == values.end() ? 0 : it->second.size() / sizeof(T));
    if (!out.empty())
      memcpy(out.data(), it->second.data(), out.size() * sizeof(T));
    return out;
  }
  template <typename T> T one(int name, T otherwise = {}) const {
    std::vector<T> values = all<T>(name);
    return values.empty() ? otherwise : values.front();
  }
  Object *ref(int name) const { return static_cast<Object *>(one<void *>(name)); }
  std::vector<int64_t> dims() const { return all<int64_t>(dnn::TensorDimensions); }
  int type() const { return one<int>(dnn::TensorDataType, -1); }
  bool isVirtual() const { return one<char>(dnn::TensorIsVirtual); }
  bool isNumber() const { return one<char>(dnn::TensorIsNumber); }
  int64_t id() const { return one<int64_t>(dnn::TensorId); }
};

dnn::Status bad(const std::string &text);
/// Of cuDNN, as $MPT_STANDIN_CUDNN says.
int64_t version();

struct Attribute {
  int type, least, most; // elements
  bool required = true;
};
/// The attributes of each kind of descriptor, as the API reference lists it.
const std::map<int, std::map<int, Attribute>> &attributes();
size_t bytesOf(int attributeType);

/// A graph of operations, of a kind that there may be an engine for.
struct Graph {
  virtual ~Graph() = default;
  /// The operands and results of operations that are not virtual.
  virtual std::vector<Object *> inMemory() const = 0;
  /// Whether the dimensions of every operation's tensors fit.
  virtual bool fits() const = 0;
  virtual bool hasEngine() const = 0;
  virtual std::string text() const = 0;
  /// The environment variable that takes the engines away.
  virtual const char *refusal() const { return "MPT_STANDIN_NO_SUMS"; }
  virtual int64_t workspaceBytes() const { return 1 << 16; }
  /// Operands are FP32, which Tensor Cores would round.
  virtual bool single() const { return false; }
  /// `host`: where tensors lie, by id; `numbers`: tensors passed by value.
  virtual void compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &numbers) const = 0;
};
/// Null for a graph of no known kind.
std::unique_ptr<Graph> graphOf(const Object &graph);
std::unique_ptr<Graph> statisticsGraph(const Object &graph);
std::unique_ptr<Graph> attentionGraph(const Object &graph);
/// Of a convolution alone (DnnPlain.cpp); null for others.
std::unique_ptr<Graph> plainGraph(const Object &graph);

/// An operation's tensors that are read, or written.
std::vector<Object *> tensorsOf(const Object &operation, bool written);
size_t elementsOf(const Object &tensor);
/// The tensors of all operations that are not virtual.
std::vector<Object *> tensorsInMemory(const std::vector<Object *> &operations);
/// Every number is one tensor's, every tensor has one maker, and virtual ones are made before they are read.
bool isOrdered(const std::vector<Object *> &operations);

inline bool isChannelsLast(const Object &tensor) {
  std::vector<int64_t> dims = tensor.dims(), strides = tensor.all<int64_t>(dnn::TensorStrides);
  int64_t expected = dims[1];
  for (size_t i = dims.size(); i-- > 2; expected *= dims[i])
    if (strides[i] != expected)
      return false;
  return strides[1] == 1 && strides[0] == expected;
}

/// A convolution of tensors, for forEachTerm.
Problem problemOf(const Object &x, const Object &w, const Object &y, const Object &convolution);

/// Graphs of a backward-data convolution with the sums of a norm's gradient (DnnGradient.cpp).
struct GradientGraph : Graph {
  std::vector<Object *> operations;
  explicit GradientGraph(const Object &graph);

  Object *convolution() const; ///< null for graphs of other kinds
  std::vector<Object *> inMemory() const override { return tensorsInMemory(operations); }
  bool fits() const override;
  /// The known engines: for the operation that makes the norm's sums, FP16 alone; for reductions, the last ones alone,
  /// of values in FP32 that nothing stores.
  bool hasEngine() const override;
  std::string text() const override;
  void compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &) const override;
};

} // namespace standin

#endif
