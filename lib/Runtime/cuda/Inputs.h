// SPDX-License-Identifier: Apache-2.0
// Inputs of a function on their way to the device.
#ifndef MPT_RUNTIME_CUDA_INPUTS_H
#define MPT_RUNTIME_CUDA_INPUTS_H

#include "cuda/CudaDevice.h"

namespace mpt::rt {

/// Page-locked host memory, which the device copies from while the host goes on.
class PinnedMemory {
  const CudaDevice *device = nullptr;

public:
  uint8_t *data = nullptr;
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory &) = delete;
  ~PinnedMemory() {
    if (!data)
      return;
    ContextScope scope(*device);
    device->api.MemFreeHost(data);
  }
  bool allocate(const CudaDevice &on, int64_t bytes) {
    device = &on;
    void *memory = nullptr;
    if (data)
      on.api.MemFreeHost(data);
    data = nullptr;
    if (on.api.MemHostAlloc(&memory, static_cast<size_t>(bytes), 0) != cu::Success)
      return false;
    data = static_cast<uint8_t *>(memory);
    return true;
  }
};

/// One of two places that the host fills while the device works from the other.
struct InputSlot {
  PinnedMemory host;
  Block memory;
  cu::Event copied = nullptr, read = nullptr; // the host's bytes have left; the device's were read
  int64_t bytes = 0;                          // of the inputs that have come from the host so far
  bool used = false;
};

/// Where a function reads its inputs, and the two places through which inputs from the host get there.
class StagedInputs {
public:
  StagedInputs(CudaDevice &device, const mpt_function_desc &f) : device(device), f(f) {}
  StagedInputs(const StagedInputs &) = delete;
  ~StagedInputs();
  /// Puts copies of the inputs at `pointers`, on the host or the device, on their way; `pointers` become the copies'
  /// places. Work on the device's stream waits for them. The device's context is current.
  mpt_status stage(std::vector<const void *> &pointers);

private:
  /// Inputs that come from the host in one copy: where they are read, and where they lie in an InputSlot.
  struct Piece {
    int64_t offset, from, bytes;
  };
  mpt_status prepare();
  mpt_status reserve(InputSlot &slot, int64_t bytes);
  mpt_status outOfMemory(int64_t bytes) const;
  mpt_status locate(const std::vector<const void *> &pointers, std::vector<bool> &onHost, int64_t &bytes) const;
  cu::Result gather(InputSlot &slot, const std::vector<bool> &onHost, std::vector<const void *> &pointers,
                    std::vector<Piece> &pieces, int64_t &filled);
  cu::Result send(InputSlot &slot, const std::vector<Piece> &pieces, int64_t filled);

  CudaDevice &device;
  const mpt_function_desc &f;
  int64_t bytes = -1;
  Block memory; // where the function reads
  InputSlot slots[2];
  unsigned next = 0;
};

} // namespace mpt::rt

#endif
