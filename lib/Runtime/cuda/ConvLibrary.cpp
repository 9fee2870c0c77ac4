// SPDX-License-Identifier: Apache-2.0
// Opening cuDNN.
#include "cuda/PlanCache.h"

#include "cuda/Library.h"

using namespace mpt::rt;

namespace {

struct State {
  dnn::Functions functions{};
  dnn::GraphFunctions graphs{};
  bool ok = false, haveGraphs = false;

  void open(const std::string &file, const std::string &folders) {
    cu::Library library;
    // Libraries that its engines that compile code open in turn, by these names.
    for (const char *name : {"libnvrtc.so.13", "libnvrtc.so.12"})
      cu::Library().open("libraries", "", folders, {name});
    ok = library.open("cudnn", file, folders, {"libcudnn.so.9", "libcudnn.so"});
#define MPT_LOAD(name) ok = ok && library.load(functions.name, "cudnn" #name);
    MPT_LOAD(Create)
    MPT_LOAD(Destroy)
    MPT_LOAD(GetVersion)
    MPT_LOAD(GetErrorString)
    MPT_LOAD(SetStream)
#undef MPT_LOAD
    ok = ok && functions.GetVersion() >= 90000;
    haveGraphs = ok;
#define MPT_LOAD(name) haveGraphs = haveGraphs && library.load(graphs.name, "cudnn" #name);
    MPT_LOAD(BackendCreateDescriptor)
    MPT_LOAD(BackendDestroyDescriptor)
    MPT_LOAD(BackendFinalize)
    MPT_LOAD(BackendSetAttribute)
    MPT_LOAD(BackendGetAttribute)
    MPT_LOAD(BackendExecute)
#undef MPT_LOAD
  }
};

} // namespace

ConvLibrary::ConvLibrary(const dnn::Functions &api, const dnn::GraphFunctions *graphs) : api(api), graphs(graphs) {}

std::unique_ptr<ConvLibrary> ConvLibrary::open(CudaDevice &device) {
  State &state = cu::openedOnce<State>(device.options.cudnn, device.options.libraries);
  if (!state.ok)
    return nullptr;
  std::unique_ptr<ConvLibrary> library(new ConvLibrary(state.functions, state.haveGraphs ? &state.graphs : nullptr));
  if (library->api.Create(&library->handle)) {
    library->handle = nullptr;
    return nullptr;
  }
  if (library->api.SetStream(library->handle, device.stream))
    return nullptr;
  library->maker = device.name + ", cuDNN " + std::to_string(library->api.GetVersion());
  library->plans = std::make_unique<PlanCache>(device, *library);
  return library;
}

ConvLibrary::~ConvLibrary() {
  plans.reset();
  if (handle)
    api.Destroy(handle);
}
