// SPDX-License-Identifier: Apache-2.0
// Opening NCCL.
#include "cuda/Nccl.h"

#include "cuda/Library.h"

using namespace mpt::rt;
using namespace mpt::rt::nccl;

namespace {

struct State {
  Functions functions{};
  bool ok = false;
  std::string problem;

  void open(const std::string &file, const std::string &folders) {
    cu::Library library;
    ok = library.open("nccl", file, folders, {"libnccl.so.2", "libnccl.so"});
#define MPT_LOAD(name) ok = ok && library.load(functions.name, "nccl" #name);
    MPT_LOAD(GetVersion)
    if (ok && (functions.GetVersion(&functions.version) != Success || functions.version < Config::oldest)) {
      ok = false;
      problem = "expected NCCL " + textOf(Config::oldest) + " or newer, got " + textOf(functions.version);
      return;
    }
    MPT_LOAD(GetUniqueId)
    MPT_LOAD(CommInitRankConfig)
    MPT_LOAD(CommGetAsyncError)
    MPT_LOAD(CommFinalize)
    MPT_LOAD(CommDestroy)
    MPT_LOAD(CommAbort)
    MPT_LOAD(GroupStart)
    MPT_LOAD(GroupEnd)
    MPT_LOAD(Send)
    MPT_LOAD(Recv)
    MPT_LOAD(AllGather)
    MPT_LOAD(GetErrorString)
    MPT_LOAD(GetLastError)
#undef MPT_LOAD
    problem = library.problem;
  }
};

} // namespace

std::string mpt::rt::nccl::textOf(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

const Functions *mpt::rt::nccl::open(const std::string &file, const std::string &folders, std::string &problem) {
  State &state = cu::openedOnce<State>(file, folders);
  problem = state.problem;
  return state.ok ? &state.functions : nullptr;
}
