// SPDX-License-Identifier: Apache-2.0
// Whether values on the device are finite, by a kernel that libraries compiled with --debug-nonfinite carry.
#include "cuda/Finite.h"

#include "core/Types.h"

#include <string>

using namespace mpt::rt;

namespace {

/// The words that the kernel reads and writes, in the kernel's order (lib/Target/CUDA/SupportKernels.cpp).
struct Search {
  int64_t nan, infinite; // found
  int64_t values;
  int64_t magnitude, infinity,
      largestNumber; // patterns of a type: all bits but the sign's, infinity's, the last no NaN's
  int64_t shape[MPT_CHECK_RANK], strides[MPT_CHECK_RANK];
};

bool describe(int64_t dtype, Search &search) {
  auto patterns = [&](int64_t magnitude, int64_t infinity) {
    search.magnitude = magnitude;
    search.infinity = search.largestNumber = infinity;
    return true;
  };
  switch (dtype) {
  case MPT_FLOAT64:
    return patterns(INT64_MAX, 0x7ff0000000000000);
  case MPT_FLOAT32:
    return patterns(0x7fffffff, 0x7f800000);
  case MPT_FLOAT16:
    return patterns(0x7fff, 0x7c00);
  case MPT_BFLOAT16:
    return patterns(0x7fff, 0x7f80);
  case MPT_FLOAT8E5M2:
    return patterns(0x7f, 0x7c);
  case MPT_FLOAT8E4M3FN: // has no infinity
    patterns(0x7f, -1);
    search.largestNumber = 0x7e;
    return true;
  default:
    return false;
  }
}

} // namespace

mpt_status mpt::rt::searchNonfinite(CudaDevice &device, Block &memory, const mpt_check_desc &desc, const void *data,
                                    bool &nans, bool &infinities) {
  Search search{};
  if (!describe(desc.dtype, search))
    return fail(MPT_UNSUPPORTED, "expected values of a floating type, got %s", nameOf(desc.dtype));
  std::string kernel = "mpt_finite_i" + std::to_string(8 * sizeOf(desc.dtype));
  int64_t number = device.kernelNumber(kernel.c_str());
  if (number < 0)
    return fail(MPT_BAD_FILE, "model '%s' has no kernel '%s'", device.module.name, kernel.c_str());
  search.values = 1;
  for (int64_t i = 0; i < MPT_CHECK_RANK; ++i) {
    const int64_t own = i - (MPT_CHECK_RANK - desc.rank);
    search.shape[i] = own < 0 ? 1 : desc.shape[own];
    search.strides[i] = own < 0 ? 0 : desc.strides[own];
    search.values *= search.shape[i];
  }
  if (!memory.data() && !memory.allocate(device, sizeof search))
    return fail(MPT_OUT_OF_MEMORY, "no memory for a search for values that are not finite%s",
                device.freeMemory().c_str());
  Transfer there{memory.data(), &search, sizeof search}, back{&search, memory.data(), sizeof search};
  if (mpt_status status = device.upload(&there, 1))
    return status;
  void *args[] = {const_cast<void *>(data), memory.data()};
  if (mpt_status status = device.launch(number, args))
    return status;
  if (mpt_status status = device.download(&back, 1))
    return status;
  nans = search.nan != 0;
  infinities = search.infinite != 0;
  return MPT_OK;
}
