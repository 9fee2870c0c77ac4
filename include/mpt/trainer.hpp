// SPDX-License-Identifier: Apache-2.0
// Training a compiled model from C++17: mpt-c/runtime.h with owners, views and exceptions. It needs libmpt_rt and nothing else.
#ifndef MPT_TRAINER_HPP
#define MPT_TRAINER_HPP

#include "mpt-c/runtime.h"

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace mpt {

/// A call failed; `what()` says why, and `status` is the C interface's.
class Error : public std::runtime_error {
public:
  Error(mpt_status status, const std::string &text) : std::runtime_error(text), status(status) {}
  mpt_status status;
};

inline void check(mpt_status status) {
  if (status != MPT_OK)
    throw Error(status, mpt_last_error());
}

/// The element type of a C++ type.
template <class T> constexpr mpt_dtype dtypeOf() {
  if constexpr (std::is_same_v<T, float>)
    return MPT_FLOAT32;
  else if constexpr (std::is_same_v<T, double>)
    return MPT_FLOAT64;
  else if constexpr (std::is_same_v<T, bool>)
    return MPT_BOOL;
  else {
    static_assert(std::is_integral_v<T>, "expected float, double, bool or an integer; give other types their mpt_dtype");
    constexpr bool isSigned = std::is_signed_v<T>;
    return sizeof(T) == 1   ? (isSigned ? MPT_INT8 : MPT_UINT8)
           : sizeof(T) == 2 ? (isSigned ? MPT_INT16 : MPT_UINT16)
           : sizeof(T) == 4 ? (isSigned ? MPT_INT32 : MPT_UINT32)
                            : (isSigned ? MPT_INT64 : MPT_UINT64);
  }
}

/// Values that somebody else owns.
template <class T> class Span {
public:
  Span(const T *data, size_t size) : first(data), count(size) {}
  const T *data() const { return first; }
  size_t size() const { return count; }
  const T *begin() const { return first; }
  const T *end() const { return first + count; }
  const T &operator[](size_t i) const { return first[i]; }

private:
  const T *first;
  size_t count;
};

using Shape = std::vector<int64_t>;

/// A dense row-major tensor that somebody else owns: an input during a call, a result until its function runs again.
class Tensor {
public:
  template <class T>
  Tensor(std::string name, const T *data, Shape shape) : Tensor(std::move(name), dtypeOf<T>(), data, std::move(shape)) {}
  template <class T>
  Tensor(std::string name, const std::vector<T> &values, Shape shape)
      : Tensor(std::move(name), dtypeOf<T>(), values.data(), std::move(shape)) {
    if (values.size() != size())
      throw Error(MPT_INVALID_ARGUMENT, "'" + this->name + "': expected " + std::to_string(size()) + " values, got " +
                                            std::to_string(values.size()));
  }
  Tensor(std::string name, mpt_dtype dtype, const void *data, Shape shape)
      : name(std::move(name)), dtype(dtype), shape(std::move(shape)), bytes(data) {}
  explicit Tensor(const mpt_tensor &t)
      : Tensor(t.name, static_cast<mpt_dtype>(t.dtype), t.data, Shape(t.shape, t.shape + t.rank)) {}

  size_t size() const {
    size_t count = 1;
    for (int64_t extent : shape)
      count *= static_cast<size_t>(extent);
    return count;
  }
  const void *data() const { return bytes; }
  template <class T> Span<T> values() const {
    if (dtypeOf<T>() != dtype)
      throw Error(MPT_INVALID_ARGUMENT, "'" + name + "': expected element type " + std::to_string(dtype) +
                                            " of mpt_dtype, got " + std::to_string(dtypeOf<T>()));
    return {static_cast<const T *>(bytes), size()};
  }
  /// As the C interface has it, while this tensor lives.
  mpt_tensor view() const {
    return {name.c_str(), dtype, static_cast<int32_t>(shape.size()), shape.data(), const_cast<void *>(bytes)};
  }

  std::string name;
  mpt_dtype dtype;
  Shape shape;

private:
  const void *bytes;
};

using Inputs = std::vector<Tensor>;

/// Results by name.
class Outputs {
public:
  explicit Outputs(std::vector<Tensor> tensors) : tensors(std::move(tensors)) {}
  const Tensor &operator[](const std::string &name) const & { return find(name); }
  Tensor operator[](const std::string &name) && { return find(name); }
  auto begin() const { return tensors.begin(); }
  auto end() const { return tensors.end(); }

private:
  const Tensor &find(const std::string &name) const {
    std::string names;
    for (const Tensor &tensor : tensors) {
      if (tensor.name == name)
        return tensor;
      names += (names.empty() ? "" : ", ") + tensor.name;
    }
    throw Error(MPT_NOT_FOUND, "expected one of the results " + names + ", got '" + name + "'");
  }
  std::vector<Tensor> tensors;
};

/// mpt_trainer_options, with defaults.
struct Options {
  int threads = 0;
  int device = 0;
  const uint64_t *seed = nullptr; ///< of dropout; null keeps the one in the weights file
  std::string weights;            ///< initial values; empty: the file beside the library
  std::map<std::string, std::string> settings;
  mpt_world *world = nullptr;
};

/// One set of parameters and optimizer state of a compiled model. One thread at a time uses it.
class Trainer {
public:
  /// A folder that mpt-opt wrote, or its lib<name>.so.
  explicit Trainer(const std::string &path, const Options &options = {}) {
    mpt_model *loaded = nullptr;
    check(mpt_model_load(path.c_str(), &loaded));
    create(loaded, options);
  }
  /// The model that is linked into the program, whose weights lie in `folder`.
  Trainer(const mpt_module_desc &module, const std::string &folder, const Options &options = {}) {
    mpt_model *loaded = nullptr;
    check(mpt_model_from_desc(&module, folder.c_str(), &loaded));
    create(loaded, options);
  }

  mpt_metrics step(const Inputs &inputs) { return call("step", inputs); }
  /// The loss is in metrics(), the results are the unscaled gradients.
  Outputs gradients(const Inputs &inputs) { return run("gradients", inputs); }
  /// The model as it is used after training: without targets the predictions alone, where it has that function.
  Outputs evaluate(const Inputs &inputs) {
    bool lacksTargets = inputs.size() < this->inputs("evaluate").size() && !outputs("predict").empty();
    return run(lacksTargets ? "predict" : "evaluate", inputs);
  }
  Outputs run(const std::string &function, const Inputs &inputs) {
    call(function, inputs);
    return Outputs(walk([&](int64_t i, mpt_tensor *out) {
      return mpt_trainer_output_at(trainer.get(), function.c_str(), i, out);
    }));
  }
  mpt_metrics metrics(const std::string &function = "step") {
    mpt_metrics found;
    check(mpt_trainer_metrics(trainer.get(), function.c_str(), &found));
    return found;
  }

  /// Arguments and results of a function, without data.
  std::vector<Tensor> inputs(const std::string &function = "step") const {
    return walk([&](int64_t i, mpt_tensor *out) { return mpt_model_input(model.get(), function.c_str(), i, out); });
  }
  std::vector<Tensor> outputs(const std::string &function = "step") const {
    return walk([&](int64_t i, mpt_tensor *out) { return mpt_model_output(model.get(), function.c_str(), i, out); });
  }
  std::string name() const { return mpt_model_name(model.get()); }
  std::string manifest() const { return mpt_model_manifest(model.get()); }

  double learningRate() const {
    double rate;
    check(mpt_trainer_learning_rate(trainer.get(), &rate));
    return rate;
  }
  void setLearningRate(double rate) { check(mpt_trainer_set_learning_rate(trainer.get(), rate)); }

  /// Every trained parameter, without data: get() reads one.
  std::vector<Tensor> parameters() const {
    return walk([&](int64_t i, mpt_tensor *out) { return mpt_trainer_parameter(trainer.get(), i, out); });
  }
  std::vector<float> get(const std::string &parameter) const {
    for (const Tensor &tensor : parameters())
      if (tensor.name == parameter) {
        std::vector<float> values(tensor.size());
        check(mpt_trainer_get(trainer.get(), parameter.c_str(), values.data(), static_cast<int64_t>(values.size())));
        return values;
      }
    throw Error(MPT_NOT_FOUND, "model '" + name() + "' has no parameter '" + parameter + "'");
  }
  void set(const std::string &parameter, const std::vector<float> &values) {
    check(mpt_trainer_set(trainer.get(), parameter.c_str(), values.data(), static_cast<int64_t>(values.size())));
  }

  void reset() { check(mpt_trainer_reset(trainer.get())); }
  void save(const std::string &path) const { check(mpt_trainer_save(trainer.get(), path.c_str())); }
  void load(const std::string &path) { check(mpt_trainer_load(trainer.get(), path.c_str())); }
  void saveOnnx(const std::string &path, bool averaged = false) const {
    check(mpt_trainer_save_onnx(trainer.get(), path.c_str(), averaged));
  }

  /// For calls of the C interface that have no method.
  mpt_trainer *handle() const { return trainer.get(); }

private:
  struct Release {
    void operator()(mpt_model *model) const { mpt_model_destroy(model); }
    void operator()(mpt_trainer *trainer) const { mpt_trainer_destroy(trainer); }
  };

  void create(mpt_model *loaded, const Options &options) {
    model.reset(loaded);
    std::vector<mpt_option> pairs;
    for (const auto &[key, value] : options.settings)
      pairs.push_back({key.c_str(), value.c_str()});
    mpt_trainer_options plain = {};
    plain.threads = options.threads;
    plain.device = options.device;
    plain.set_seed = options.seed != nullptr;
    plain.seed = options.seed ? *options.seed : 0;
    plain.weights = options.weights.empty() ? nullptr : options.weights.c_str();
    plain.options = pairs.data();
    plain.num_options = static_cast<int64_t>(pairs.size());
    plain.world = options.world;
    mpt_trainer *created = nullptr;
    check(mpt_trainer_create(loaded, &plain, &created));
    trainer.reset(created);
  }

  mpt_metrics call(const std::string &function, const Inputs &inputs) {
    std::vector<mpt_tensor> views;
    for (const Tensor &input : inputs)
      views.push_back(input.view());
    mpt_metrics found;
    check(mpt_trainer_run(trainer.get(), function.c_str(), views.data(), static_cast<int64_t>(views.size()), &found));
    return found;
  }

  /// Calls `next` with 0, 1, 2 ... until there is no such tensor.
  template <class Next> static std::vector<Tensor> walk(Next next) {
    std::vector<Tensor> found;
    mpt_tensor tensor;
    mpt_status status;
    while ((status = next(static_cast<int64_t>(found.size()), &tensor)) == MPT_OK)
      found.emplace_back(tensor);
    if (status != MPT_NOT_FOUND)
      check(status);
    return found;
  }

  std::unique_ptr<mpt_model, Release> model;
  std::unique_ptr<mpt_trainer, Release> trainer; // goes first
};

} // namespace mpt

#endif // MPT_TRAINER_HPP
