// SPDX-License-Identifier: Apache-2.0
// A trainer's CUDA device: context, stream, kernels, memory, scratch of library calls, and the libraries' handles.
#ifndef MPT_RUNTIME_CUDA_CUDADEVICE_H
#define MPT_RUNTIME_CUDA_CUDADEVICE_H

#include "core/Context.h"
#include "core/Device.h"
#include "cuda/Choices.h"
#include "cuda/CudaOptions.h"
#include "cuda/Driver.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace mpt::rt {

class BlasLibrary;
class ConvLibrary;

/// Knows when work on a device will not end, since it waits for other processes.
class Watcher {
public:
  /// Not MPT_OK, with an error text, once the work will not end; calls that wait for it have been ended then.
  /// `seconds`: since it is waited for.
  virtual mpt_status look(double seconds) = 0;

protected:
  ~Watcher() = default;
};

class CudaDevice final : public Device {
public:
  CudaDevice(const cu::Driver &api, const mpt_module_desc &module, CudaOptions options);
  ~CudaDevice() override;
  /// Takes device `ordinal` and loads the kernels.
  mpt_status open(int ordinal);

  bool sharesHostMemory() const override { return false; }
  std::unique_ptr<Memory> allocate(int64_t bytes) override;
  mpt_status upload(const Transfer *transfers, size_t count) override;
  mpt_status download(const Transfer *transfers, size_t count) override;
  mpt_status fetch(const Transfer &transfer) override;
  mpt_status locate(const void *data, bool &onHost) override;
  mpt_status stage(const mpt_function_desc &f, FunctionState &state) override;
  mpt_status run(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec) override;
  mpt_status time(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec, int64_t runs,
                  double &seconds) override;
  std::string description() const override { return name; }
  std::string libraries() override;
  mpt_status findNonfinite(const mpt_check_desc &desc, const void *data, bool &nans, bool &infinities) override;
  mpt_status openExchange(World *world, std::unique_ptr<DeviceExchange> &out) override;
  mpt_status synchronize() override;
  std::string freeMemory() const override;
  int64_t stagingBytes() const override { return staged + scratchMemory.bytes() + constantBytes; }
  std::string choices() const override { return chosen.text(); }
  bool takeChoices(const std::string &text, const char *path) override;
  /// Counts `bytes` of memory that functions keep for their inputs.
  void addStaged(int64_t bytes) { staged += bytes; }

  /// Scratch for one library call at a time; null with an error text. It moves where a call needs more than
  /// all before, and graphs that used it are captured again.
  uint8_t *scratch(int64_t bytes);
  /// Changes whenever scratch moves.
  int64_t scratchVersion() const { return scratchGeneration; }
  /// The address on the device of constants of the library.
  mpt_status constant(const void *host, int64_t bytes, const void **out);
  /// Null with an error text where the library is not to be had.
  BlasLibrary *blas();
  /// Null, without an error text, where there is no cuDNN: convolutions then are GEMMs.
  ConvLibrary *convolutions();

  /// Number of a kernel by name, -1 when the library has none of that name.
  int64_t kernelNumber(const char *name) const;
  mpt_status launch(int64_t kernel, void *const *args, const int64_t *grid = nullptr);

  const cu::Driver &api;
  const mpt_module_desc &module;
  const CudaOptions options;
  cu::Stream stream = nullptr;
  cu::Stream copies = nullptr;  // of inputs from the host
  cu::Stream present = nullptr; // where kernels are launched: `stream`, or one that runs beside it
  int ordinal = 0, arch = 0;    // arch: 10 * major + minor
  bool capturing = false;
  bool together = false;      // functions run as parts of one step, whose graph is not theirs
  Watcher *watcher = nullptr; // null: work ends by itself
  /// Wait for the work of a stream, or for an event, unless the watcher says that it will not come.
  mpt_status waitFor(cu::Stream stream, const char *what);
  mpt_status waitForEvent(cu::Event event, const char *what);
  /// Launches a kernel that the runtime found the name of: `what` is for errors, for which `kernel` is one that the
  /// model lacks, since cuDNN does its work.
  mpt_status launchNamed(const char *what, const std::string &kernel, void *const *args);
  /// A copy of `bytes` of the host's in memory of its own; waits for it. `what` is for errors.
  mpt_status place(const char *what, const void *host, size_t bytes, std::unique_ptr<Memory> &to);
  /// A graph of the work that `work` puts on the stream; null where that fails or cannot be recorded.
  mpt_status capture(const std::function<mpt_status()> &work, cu::GraphExec &out);
  /// Milliseconds of the work that `enqueue` puts on the stream: the best of `rounds` behind a first, which loads code.
  /// Short work runs several times in a graph, so that its launches do not count. Negative where it fails. Waits for
  /// the device.
  float fastest(int rounds, const std::function<bool()> &enqueue);
  /// Milliseconds of `enqueue`, the mean of `count` in a row. Negative where it fails. Waits for the device.
  float meanOf(int count, const std::function<bool()> &enqueue);
  /// Milliseconds of reading `bytes`: of a copy that moves as many. Negative where it cannot be measured.
  float timeOfPass(int64_t bytes);
  bool warming = false; // the first run of a function: library calls may try variants
  std::string name;     // as the driver calls the device
  Choices chosen;
  bool expecting = false; // calls only say which plans of cuDNN's they will ask for
  /// Makes the plans that calls have asked for.
  void makePlans();

private:
  friend class ContextScope;
  mpt_status loadImage();
  mpt_status findKernels(const mpt_image_desc &image);

  cu::Device device = 0;
  cu::Context context = nullptr;
  cu::Module code = nullptr;
  cu::Event produced = nullptr; // behind the default stream's work when indices were asked for
  std::vector<cu::Function> kernels;
  std::map<const void *, std::unique_ptr<Memory>> constants;
  int64_t staged = 0, constantBytes = 0;
  Block scratchMemory, searchMemory;
  int64_t scratchGeneration = 0;
  std::unique_ptr<BlasLibrary> blasLibrary;
  std::unique_ptr<ConvLibrary> convLibrary;
  bool triedConvolutions = false;
  mpt_status wait(const char *what, const std::function<cu::Result()> &isDone);
  float timeOnce(const std::function<bool()> &enqueue);
  /// A graph of `count` times `enqueue`; null where that cannot be recorded.
  cu::GraphExec record(int count, const std::function<bool()> &enqueue);
};

/// The device's context on the calling thread while this object lives.
class ContextScope {
public:
  explicit ContextScope(const CudaDevice &device) : device(device) { device.api.CtxPushCurrent_v2(device.context); }
  ContextScope(const ContextScope &) = delete;
  ~ContextScope() {
    cu::Context popped;
    device.api.CtxPopCurrent_v2(&popped);
  }

private:
  const CudaDevice &device;
};

/// The device in the core's Context, which mpt_exec.runtime points to.
inline CudaDevice &deviceOf(const mpt_exec *exec) {
  return *static_cast<CudaDevice *>(static_cast<Context *>(exec->runtime)->device);
}

/// One call of emitted code: counts it, and on failure puts the node that it computes before the error's text.
class Call {
public:
  explicit Call(const mpt_exec *exec);
  CudaDevice &device;

  /// Runs `work`, or, while calls only say which plans of cuDNN's they will ask for, `expect`. A failure names the
  /// node; where every call is waited for, an error of the device is one too.
  template <typename Work, typename Expect> mpt_status run(Work work, Expect expect) {
    return device.expecting ? expect() : finish(work());
  }
  /// The same for calls that ask for no plans.
  template <typename Work> mpt_status run(Work work) {
    return run(work, [] { return MPT_OK; });
  }

private:
  mpt_status finish(mpt_status status);

  Context &context;
  const mpt_call_desc *call = nullptr;
};

/// How names of kernels that the runtime launches by itself end; null for types without such kernels.
inline const char *suffixOf(int64_t dtype) {
  return dtype == MPT_FLOAT32 ? "f32" : dtype == MPT_FLOAT16 ? "f16" : dtype == MPT_BFLOAT16 ? "bf16" : nullptr;
}

inline cu::Pointer address(const void *p) { return reinterpret_cast<cu::Pointer>(p); }

} // namespace mpt::rt

#endif
