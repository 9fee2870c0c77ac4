// SPDX-License-Identifier: Apache-2.0
// NCCL, opened at run time: the functions of libnccl that the runtime uses, declared here so that building needs no
// NCCL. Names, types and numbers follow NVIDIA's nccl.h (2.14 on).
#ifndef MPT_RUNTIME_CUDA_NCCL_H
#define MPT_RUNTIME_CUDA_NCCL_H

#include "cuda/Driver.h"

#include <cstddef>
#include <string>

namespace mpt::rt::nccl {

using Result = int;
using Comm = struct ncclComm *;

enum : Result { Success = 0, InvalidArgument = 4, InvalidUsage = 5, RemoteError = 6, InProgress = 7 };
enum DataType { Uint8 = 1, Float16 = 6, Float32 = 7, Bfloat16 = 9 };

struct UniqueId {
  char bytes[128];
};

/// The settings of a communicator as of 2.14, which later versions fill up by themselves.
struct Config {
  static constexpr unsigned magicNumber = 0xcafebeef;
  static constexpr int oldest = 21400;
  size_t size = sizeof(Config);
  unsigned magic = magicNumber;
  unsigned version = oldest;
  int blocking = 1;
};

/// One member a function, named as in libnccl without the leading "nccl".
struct Functions {
  Result (*GetVersion)(int *version);
  Result (*GetUniqueId)(UniqueId *id);
  Result (*CommInitRankConfig)(Comm *comm, int ranks, UniqueId id, int rank, Config *config);
  Result (*CommGetAsyncError)(Comm comm, Result *error);
  Result (*CommFinalize)(Comm comm);
  Result (*CommDestroy)(Comm comm);
  Result (*CommAbort)(Comm comm);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*Send)(const void *data, size_t count, int type, int peer, Comm comm, cu::Stream stream);
  Result (*Recv)(void *data, size_t count, int type, int peer, Comm comm, cu::Stream stream);
  Result (*AllGather)(const void *mine, void *all, size_t count, int type, Comm comm, cu::Stream stream);
  const char *(*GetErrorString)(Result result);
  const char *(*GetLastError)(Comm comm);

  int version = 0; // as ncclGetVersion says: 10000 * major + 100 * minor + patch
};

/// Opens `file`, or the usual names in `folders` and where the system finds them, once a process. Null with the reason
/// in `problem` where there is none, or one that is too old.
const Functions *open(const std::string &file, const std::string &folders, std::string &problem);

/// "2.27.3".
std::string textOf(int version);

} // namespace mpt::rt::nccl

#endif
