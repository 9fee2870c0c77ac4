// SPDX-License-Identifier: Apache-2.0
// Opening cuBLASLt, and the file of algorithms that searches found.
#include "cuda/Blas.h"

#include "cuda/Library.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpt::rt;

namespace {

struct State {
  lt::Functions functions{};
  bool ok = false;
  std::string problem;

  void open(const std::string &file) {
    cu::Library library;
    ok = library.open("cublaslt", file, {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"});
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

/// Every folder of a path that is missing.
void makeFolders(const std::string &file) {
  for (size_t at = file.find('/', 1); at != std::string::npos; at = file.find('/', at + 1))
    mkdir(file.substr(0, at).c_str(), 0777);
}

} // namespace

std::unique_ptr<BlasLibrary> BlasLibrary::open(CudaDevice &device) {
  State &state = cu::openedOnce<State>(device.options.cublaslt);
  if (!state.ok) {
    fail(MPT_UNSUPPORTED,
         "no cuBLASLt on this machine (%s): install CUDA 12 or 13, or name libcublasLt.so in option cublaslt of the "
         "trainer",
         state.problem.c_str());
    return nullptr;
  }
  std::unique_ptr<BlasLibrary> blas(new BlasLibrary(state.functions));
  if (int status = blas->api.Create(&blas->handle)) {
    blas->handle = nullptr;
    fail(MPT_INTERNAL, "cuBLASLt does not start: status %d", status);
    return nullptr;
  }
  // "wide-sums": files from before held algorithms that add up in 16 bits.
  blas->prefix = device.name + " " + std::to_string(blas->api.GetVersion()) + " wide-sums ";
  blas->cacheFile = device.options.cache;
  blas->readCache();
  return blas;
}

BlasLibrary::~BlasLibrary() {
  if (changed)
    writeCache();
  if (handle)
    api.Destroy(handle);
}

const lt::Heuristic *BlasLibrary::find(const std::string &key) const {
  auto it = algorithms.find(prefix + key);
  return it == algorithms.end() ? nullptr : &it->second;
}

void BlasLibrary::remember(const std::string &key, const lt::Heuristic &algorithm) {
  algorithms[prefix + key] = algorithm;
  changed = true;
}

// One line an algorithm: key, tab, bytes of workspace and eight words.
void BlasLibrary::readCache() {
  if (cacheFile.empty())
    return;
  std::ifstream file(cacheFile);
  for (std::string line; std::getline(file, line);) {
    size_t tab = line.find('\t');
    if (tab == std::string::npos)
      continue;
    std::istringstream words(line.substr(tab + 1));
    lt::Heuristic found{};
    words >> std::hex >> found.workspace;
    for (uint64_t &word : found.algorithm.data)
      words >> word;
    if (words && found.workspace <= static_cast<size_t>(workspaceBytes))
      algorithms.emplace(line.substr(0, tab), found);
  }
}

void BlasLibrary::writeCache() {
  if (cacheFile.empty())
    return;
  makeFolders(cacheFile);
  readCache(); // what other processes found meanwhile
  // A cache: a file that cannot be written, or is overtaken by another process's, costs a search.
  std::string temporary = cacheFile + "." + std::to_string(getpid());
  std::ofstream file(temporary);
  for (const auto &[key, found] : algorithms) {
    file << key << '\t' << std::hex << found.workspace;
    for (uint64_t word : found.algorithm.data)
      file << ' ' << word;
    file << '\n';
  }
  file.close();
  if (!file || rename(temporary.c_str(), cacheFile.c_str()) != 0)
    unlink(temporary.c_str());
}
