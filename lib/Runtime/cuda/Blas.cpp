// SPDX-License-Identifier: Apache-2.0
// Opening cuBLASLt.
#include "cuda/Blas.h"

#include "cuda/Library.h"

using namespace mpt::rt;

namespace {

struct State {
  lt::Functions functions{};
  bool ok = false;
  std::string problem;

  void open(const std::string &file, const std::string &folders) {
    cu::Library library;
    ok = library.open("cublaslt", file, folders, {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
#define MPT_LOAD(name) ok = ok && library.load(functions.name, "cublasLt" #name);
    MPT_LOAD(Create)
    MPT_LOAD(Destroy)
    MPT_LOAD(GetVersion)
    MPT_LOAD(MatmulDescCreate)
    MPT_LOAD(MatmulDescDestroy)
    MPT_LOAD(MatmulDescSetAttribute)
    MPT_LOAD(MatrixLayoutCreate)
    MPT_LOAD(MatrixLayoutDestroy)
    MPT_LOAD(MatrixLayoutSetAttribute)
    MPT_LOAD(MatmulPreferenceCreate)
    MPT_LOAD(MatmulPreferenceDestroy)
    MPT_LOAD(MatmulPreferenceSetAttribute)
    MPT_LOAD(MatmulAlgoGetHeuristic)
    MPT_LOAD(Matmul)
#undef MPT_LOAD
    problem = library.problem;
  }
};

} // namespace

std::unique_ptr<BlasLibrary> BlasLibrary::open(CudaDevice &device) {
  State &state = cu::openedOnce<State>(device.options.cublaslt, device.options.libraries);
  if (!state.ok) {
    fail(MPT_UNSUPPORTED,
         "no cuBLASLt on this machine (%s): install CUDA 12 or 13, or name libcublasLt.so in option cublaslt, "
         "or its folder in option libraries, of the trainer",
         state.problem.c_str());
    return nullptr;
  }
  std::unique_ptr<BlasLibrary> blas(new BlasLibrary(state.functions));
  if (int status = blas->api.Create(&blas->handle)) {
    blas->handle = nullptr;
    fail(MPT_INTERNAL, "cuBLASLt does not start: status %d", status);
    return nullptr;
  }
  blas->maker = device.name + ", cuBLASLt " + std::to_string(blas->api.GetVersion());
  return blas;
}

BlasLibrary::~BlasLibrary() {
  if (handle)
    api.Destroy(handle);
}
