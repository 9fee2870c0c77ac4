// SPDX-License-Identifier: Apache-2.0
// The fake cuDNN: handles and its version.
#include "DnnObjects.h"

#include <cstdlib>
#include <mutex>
#include <set>

using namespace mpt::rt;
using namespace standin;

namespace {

std::mutex lock;
std::set<DnnHandle *> handles;

} // namespace

int64_t standin::version() {
  const char *given = getenv("MPT_STANDIN_CUDNN");
  return given ? atoll(given) : 92800;
}

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT dnn::Status cudnnCreate(dnn::Handle *handle) {
  if (!blasWasOpened())
    violation("cuDNN: a handle is made before cuBLASLt is opened, which it looks for");
  std::lock_guard guard(lock);
  auto *made = new DnnHandle;
  handles.insert(made);
  *handle = reinterpret_cast<dnn::Handle>(made);
  return 0;
}
EXPORT dnn::Status cudnnDestroy(dnn::Handle handle) {
  std::lock_guard guard(lock);
  auto *known = reinterpret_cast<DnnHandle *>(handle);
  if (!handles.erase(known))
    return bad("a handle is destroyed that there is none of");
  delete known;
  return 0;
}
EXPORT size_t cudnnGetVersion() { return static_cast<size_t>(version()); }
EXPORT const char *cudnnGetErrorString(dnn::Status) { return "the stand-in says so"; }
EXPORT dnn::Status cudnnSetStream(dnn::Handle handle, cu::Stream stream) {
  reinterpret_cast<DnnHandle *>(handle)->stream = stream;
  return 0;
}
