// SPDX-License-Identifier: Apache-2.0
// The runtime's own declarations of NCCL against NVIDIA's nccl.h, where it is to be had: numbers, layouts, functions.
#include "cuda/Nccl.h"

#include <cstddef>
#include <cstdio>
#include <nccl.h>
#include <type_traits>

using namespace mpt::rt;

#define SAME(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #ours)

SAME(nccl::Success, ncclSuccess);
SAME(nccl::InvalidArgument, ncclInvalidArgument);
SAME(nccl::InvalidUsage, ncclInvalidUsage);
SAME(nccl::RemoteError, ncclRemoteError);
SAME(nccl::InProgress, ncclInProgress);
SAME(nccl::Uint8, ncclUint8);
SAME(nccl::Float16, ncclFloat16);
SAME(nccl::Float32, ncclFloat32);
SAME(nccl::Bfloat16, ncclBfloat16);
SAME(sizeof(nccl::UniqueId), sizeof(ncclUniqueId));
SAME(nccl::Config::magicNumber, NCCL_API_MAGIC);
SAME(nccl::Config::oldest, NCCL_VERSION(2, 14, 0));
// Ours is the beginning of theirs, which has grown.
SAME(offsetof(nccl::Config, size), offsetof(ncclConfig_t, size));
SAME(offsetof(nccl::Config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(nccl::Config, version), offsetof(ncclConfig_t, version));
SAME(offsetof(nccl::Config, blocking), offsetof(ncclConfig_t, blocking));
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
SAME(sizeof(ncclResult_t), sizeof(nccl::Result));
SAME(sizeof(ncclDataType_t), sizeof(int));

/// A type as a call passes it: enumerations as int, pointers as such.
template <typename T>
using Passed = std::conditional_t<std::is_enum_v<T>, int, std::conditional_t<std::is_pointer_v<T>, void *, T>>;
template <typename T, typename U> constexpr bool alike() {
  if constexpr (std::is_class_v<T> && std::is_class_v<U>)
    return sizeof(T) == sizeof(U);
  else
    return std::is_same_v<Passed<T>, Passed<U>>;
}
template <typename Ours, typename Theirs> struct SameCall;
template <typename R, typename S, typename... A, typename... B> struct SameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B))
      return alike<R, S>() && (alike<A, B>() && ...);
    else
      return false;
  }();
};
#define CALL(name) static_assert(SameCall<decltype(nccl::Functions::name), decltype(&nccl##name)>::value, "nccl" #name)

CALL(GetVersion);
CALL(GetUniqueId);
CALL(CommInitRankConfig);
CALL(CommGetAsyncError);
CALL(CommFinalize);
CALL(CommDestroy);
CALL(CommAbort);
CALL(GroupStart);
CALL(GroupEnd);
CALL(Send);
CALL(Recv);
CALL(AllGather);
CALL(GetErrorString);
CALL(GetLastError);

int main() {
  printf("nccl-header: passed (NCCL %d.%d.%d)\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  return 0;
}
