// SPDX-License-Identifier: Apache-2.0
// cuDNN itself beside a fake driver, and processors that are only described to it: it makes plans and runs nothing.
#ifndef MPT_TEST_CUDA_DESCRIBEDPROCESSOR_H
#define MPT_TEST_CUDA_DESCRIBEDPROCESSOR_H

#include "Check.h"

#include "cuda/AttentionGraph.h"
#include "cuda/ConvGraph.h"

#include <dlfcn.h>
#include <string>
#include <type_traits>

namespace mpt::test {

/// cuDNN's functions; `driver` is the fake one, and the driver that a machine has comes before it.
struct Cudnn {
  Cudnn(const char *path, const char *driver) {
    if (!(this->driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)))
      EXPECT((this->driver = dlopen(driver, RTLD_NOW | RTLD_GLOBAL)) != nullptr);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!EXPECT(library != nullptr)) {
      fprintf(stderr, "%s\n", dlerror());
      return;
    }
    auto load = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      EXPECT(function != nullptr);
    };
    size_t (*getVersion)() = nullptr;
    load(getVersion, "cudnnGetVersion");
    load(api.BackendCreateDescriptor, "cudnnBackendCreateDescriptor");
    load(api.BackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
    load(api.BackendFinalize, "cudnnBackendFinalize");
    load(api.BackendSetAttribute, "cudnnBackendSetAttribute");
    load(api.BackendGetAttribute, "cudnnBackendGetAttribute");
    version = getVersion ? getVersion() : 0;
    printf("cuDNN %zu\n", version);
  }
  /// Versions before 9.10 take no description of a processor.
  bool takesDescriptions() const { return !failures && version >= 91000; }

  void *driver = nullptr;
  rt::dnn::GraphFunctions api{};
  size_t version = 0;
};

/// A data-centre processor of an architecture, in the words of the library.
inline std::string describe(int arch) {
  const int processors = arch == 80 ? 108 : arch == 90 ? 132 : 148, shared = arch == 80 ? 166912 : 232448;
  return "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,"
         "\"multiProcessorCount\":" +
         std::to_string(processors) +
         ",\"smCountOrigin\":0,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":" +
         std::to_string(shared) +
         ",\"oversizedSharedMemoryPerBlock\":0,\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,"
         "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
         "\"supportCoopLaunch\":1,\"smClockRateKHz\":1500000,\"memClockRateKHz\":2000000,\"memoryBusWidth\":5120,"
         "\"l2CacheSize\":41943040,\"deviceName\":\"\",\"driverVer\":13000,\"cudaDeviceId\":0,"
         "\"totalGlobalMem\":80000000000,\"deviceVer\":" +
         std::to_string(arch * 10) + "}";
}

/// A processor as graphs are planned for it.
struct DescribedProcessor {
  DescribedProcessor(const rt::dnn::GraphFunctions &api, int arch) : arch(arch), maker(api) {
    enum { DeviceDescriptor = 38, DeviceJson = 2702, CharType = 24 };
    const std::string text = describe(arch);
    target.device = maker.make(DeviceDescriptor);
    maker.set(target.device, DeviceJson, CharType, text.data(), text.size());
    maker.finish(target.device);
    EXPECT(!maker.status);
  }

  const int arch;
  rt::GraphMaker maker;
  rt::PlanTarget target;
};

struct Layer {
  const char *name;
  int64_t n, extent, in, out, kernel, stride, groups = 1;
};
inline mpt_conv_desc convolutionOf(const Layer &l, int64_t kind, int64_t type, bool isWide = false) {
  mpt_conv_desc d{};
  d.kind = kind, d.n = l.n, d.ic = l.in, d.oc = l.out, d.groups = l.groups;
  for (int i = 0; i < 3; ++i) {
    const bool is = i > 0;
    d.in[i] = is ? l.extent : 1, d.kernel[i] = is ? l.kernel : 1, d.stride[i] = is ? l.stride : 1, d.dilation[i] = 1;
    d.pad_low[i] = d.pad_high[i] = is ? l.kernel / 2 : 0;
    d.out[i] = (d.in[i] + 2 * d.pad_low[i] - d.kernel[i]) / d.stride[i] + 1;
  }
  d.x_type = d.w_type = d.y_type = type;
  if (isWide)
    (kind == MPT_CONV_FORWARD ? d.y_type : kind == MPT_CONV_BACKWARD_DATA ? d.x_type : d.w_type) = MPT_FLOAT32;
  return d;
}

} // namespace mpt::test

#endif // MPT_TEST_CUDA_DESCRIBEDPROCESSOR_H
