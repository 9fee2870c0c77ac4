// SPDX-License-Identifier: Apache-2.0
// Graphs of attention against cuDNN itself, where its library is: on processors that are only described to it, it has
// to have an engine for each and to make the plan. Needs no GPU, runs nothing. Arguments: cuDNN, a driver's stand-in.
#include "Check.h"

#include "cuda/AttentionGraph.h"

#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

using namespace mpt::rt;
using namespace mpt::test;

namespace {

enum { DeviceDescriptor = 38, DeviceJson = 2702, CharType = 24, HeuristicDevice = 204, PlanDevice = 407 };

struct Case {
  const char *name;
  int64_t batch, heads, kvHeads, queries, keys, depth, valueDepth, type;
  int bias; // 0: none, 1: full, 2: by key, 3: without a batch and heads
  bool biasInSingle, causal;
};

constexpr Case cases[] = {
    {"GPT-2", 4, 12, 12, 1024, 1024, 64, 64, MPT_BFLOAT16, 0, false, true},
    {"BERT", 64, 12, 12, 128, 128, 64, 64, MPT_FLOAT16, 0, false, false},
    {"BERT with a mask", 64, 12, 12, 128, 128, 64, 64, MPT_FLOAT16, 2, false, false},
    {"BERT with a mask in FP32", 64, 12, 12, 128, 128, 64, 64, MPT_BFLOAT16, 2, true, false},
    {"full bias", 4, 12, 12, 128, 128, 64, 64, MPT_FLOAT16, 1, false, false},
    {"causal with a bias, uneven", 4, 4, 4, 77, 77, 64, 64, MPT_FLOAT16, 3, false, true},
    {"shared keys", 2, 32, 8, 512, 512, 128, 128, MPT_BFLOAT16, 0, false, true},
    {"other queries than keys", 2, 4, 4, 100, 37, 32, 32, MPT_FLOAT16, 0, false, false},
    {"deeper values", 2, 4, 4, 128, 128, 64, 128, MPT_BFLOAT16, 0, false, false},
    {"vision", 2, 4, 4, 197, 197, 72, 72, MPT_FLOAT16, 0, false, false},
    {"tiny", 2, 2, 2, 5, 7, 8, 8, MPT_FLOAT16, 0, false, false},
};

mpt_attention_desc descOf(const Case &c) {
  mpt_attention_desc d{};
  d.batch = c.batch, d.heads = c.heads, d.kv_heads = c.kvHeads, d.queries = c.queries, d.keys = c.keys;
  d.depth = c.depth, d.value_depth = c.valueDepth, d.type = c.type, d.causal = c.causal, d.scale = 0.125;
  auto rows = [](int64_t (&strides)[3], int64_t heads, int64_t length, int64_t depth) {
    strides[0] = length * heads * depth, strides[1] = depth, strides[2] = heads * depth;
  };
  for (auto *strides : {&d.q_strides, &d.dq_strides})
    rows(*strides, c.heads, c.queries, c.depth);
  for (auto *strides : {&d.k_strides, &d.dk_strides})
    rows(*strides, c.kvHeads, c.keys, c.depth);
  for (auto *strides : {&d.v_strides, &d.dv_strides})
    rows(*strides, c.kvHeads, c.keys, c.valueDepth);
  for (auto *strides : {&d.o_strides, &d.do_strides})
    rows(*strides, c.heads, c.queries, c.valueDepth);
  const int64_t square = c.queries * c.keys;
  const int64_t biases[4][4] = {{}, {c.heads * square, square, c.keys, 1}, {c.keys, 0, 0, 1}, {0, 0, c.keys, 1}};
  memcpy(d.bias_strides, biases[c.bias], sizeof d.bias_strides);
  d.bias_type = !c.bias ? 0 : c.biasInSingle ? static_cast<int64_t>(MPT_FLOAT32) : c.type;
  return d;
}

/// A data-centre processor of an architecture, in the words of the library.
std::string describe(int arch) {
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

/// The library's engines for a graph on a processor: how many it proposes, and the scratch of the first one's plan.
struct Plans {
  int64_t count = 0, scratch = -1;
};

Plans plansOf(const dnn::GraphFunctions &api, size_t version, const mpt_attention_desc &d, bool gradient, int arch,
              bool withPlan) {
  GraphMaker b(api);
  const std::string text = describe(arch);
  dnn::Descriptor device = b.make(DeviceDescriptor);
  b.set(device, DeviceJson, CharType, text.data(), text.size());
  b.finish(device);
  if (!EXPECT(!b.status))
    return {};
  dnn::Descriptor graph = attentionForm(nullptr, version, d, gradient).make(b),
                  heuristic = b.make(dnn::HeuristicDescriptor);
  const int mode = dnn::HeuristicA;
  b.link(heuristic, {{dnn::HeuristicGraph, graph}, {HeuristicDevice, device}});
  b.set(heuristic, dnn::HeuristicMode, dnn::HeuristicModeType, mode);
  b.finish(heuristic);
  dnn::Descriptor configs[8];
  for (dnn::Descriptor &config : configs)
    config = b.make(dnn::EngineConfigDescriptor);
  Plans plans;
  int64_t count = 0;
  if (!EXPECT(!b.status) ||
      api.BackendGetAttribute(heuristic, dnn::HeuristicResults, dnn::DescriptorsType, 8, &count, configs))
    return plans;
  plans.count = count;
  if (count && withPlan) {
    GraphMaker maker(api);
    dnn::Descriptor plan = maker.make(dnn::PlanDescriptor);
    maker.link(plan, {{dnn::PlanConfig, configs[0]}, {PlanDevice, device}});
    maker.finish(plan);
    int64_t one = 0;
    EXPECT(!maker.status &&
           !api.BackendGetAttribute(plan, dnn::PlanWorkspace, dnn::Int64Type, 1, &one, &plans.scratch));
  }
  return plans;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
    EXPECT(dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) != nullptr);
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (!EXPECT(library != nullptr)) {
    fprintf(stderr, "%s\n", dlerror());
    return finish("cuDNN's library");
  }
  dnn::GraphFunctions api{};
  size_t (*version)() = nullptr;
  auto load = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    EXPECT(function != nullptr);
  };
  load(version, "cudnnGetVersion");
  load(api.BackendCreateDescriptor, "cudnnBackendCreateDescriptor");
  load(api.BackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
  load(api.BackendFinalize, "cudnnBackendFinalize");
  load(api.BackendSetAttribute, "cudnnBackendSetAttribute");
  load(api.BackendGetAttribute, "cudnnBackendGetAttribute");
  if (failures || version() < 92000) { // earlier ones describe devices in other words
    printf("cuDNN %zu: skipped\n", failures ? 0 : version());
    return failures != 0;
  }
  printf("cuDNN %zu: engines and bytes of scratch (-1: not planned), forward and gradient\n", version());
  for (const Case &c : cases)
    for (int arch : {80, 90, 100}) {
      const mpt_attention_desc d = descOf(c);
      // Each plan is compiled, for seconds on a busy machine: some of them.
      const bool withPlan = arch == 90 && (&c == cases || c.heads != c.kvHeads || c.bias == 3);
      Plans forward = plansOf(api, version(), d, false, arch, withPlan);
      Plans gradient = plansOf(api, version(), d, true, arch, withPlan);
      auto number = [](int64_t n) { return static_cast<long long>(n); };
      printf("%-28s sm_%d: %lld, %lld; %lld, %lld\n", c.name, arch, number(forward.count), number(forward.scratch),
             number(gradient.count), number(gradient.scratch));
      EXPECT(forward.count > 0 && forward.scratch <= ConvLibrary::workspaceBytes);
      EXPECT(gradient.count > 0 && gradient.scratch <= ConvLibrary::workspaceBytes);
    }
  return finish("cuDNN's library");
}
