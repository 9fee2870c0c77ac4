// SPDX-License-Identifier: Apache-2.0
// Host memory in whole pages.
#include "core/HostMemory.h"

#include <algorithm>
#include <sys/mman.h>

using namespace mpt::rt;

namespace {

class HostMemory : public Memory {
public:
  HostMemory(uint8_t *start, int64_t length, void *mapping, size_t mapped)
      : Memory(start, length), mapping(mapping), mapped(mapped) {}
  ~HostMemory() override { munmap(mapping, mapped); }

private:
  void *mapping;
  size_t mapped;
};

} // namespace

std::unique_ptr<Memory> mpt::rt::allocateHost(int64_t bytes) {
  constexpr size_t large = 2 << 20;
  size_t mapped =
      (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + 4095) / 4096 * 4096 + (bytes >= 4 << 20 ? large : 0);
  void *mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return nullptr;
  auto *start = static_cast<uint8_t *>(mapping);
  if (bytes >= 4 << 20) {
    start += (large - reinterpret_cast<uintptr_t>(start) % large) % large;
    madvise(start, static_cast<size_t>(bytes) / large * large, MADV_HUGEPAGE);
  }
  return std::make_unique<HostMemory>(start, bytes, mapping, mapped);
}
