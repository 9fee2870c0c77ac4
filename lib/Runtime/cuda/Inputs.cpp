// SPDX-License-Identifier: Apache-2.0
// Inputs from the host pass through page-locked memory in two places that take turns, over a stream of their own.
#include "cuda/Inputs.h"

#include <cstring>

using namespace mpt::rt;

static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

StagedInputs::~StagedInputs() {
  ContextScope scope(device);
  for (InputSlot &slot : slots)
    for (cu::Event event : {slot.copied, slot.read})
      if (event)
        device.api.EventDestroy_v2(event);
}

mpt_status StagedInputs::prepare() {
  if (bytes >= 0)
    return MPT_OK;
  int64_t wanted = 0;
  for (int64_t k = 0; k < f.num_inputs; ++k)
    wanted += aligned(f.inputs[k].bytes);
  bool ok = memory.allocate(device, wanted);
  for (InputSlot &slot : slots)
    ok = ok && device.api.EventCreate(&slot.copied, cu::EventDisableTiming) == cu::Success &&
         device.api.EventCreate(&slot.read, cu::EventDisableTiming) == cu::Success;
  if (!ok)
    return outOfMemory(wanted);
  bytes = wanted;
  device.addStaged(bytes);
  return MPT_OK;
}

mpt_status StagedInputs::outOfMemory(int64_t bytes) const {
  return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of inputs of '%s'%s", static_cast<long long>(bytes), f.name,
              device.freeMemory().c_str());
}

/// Room in `slot` for inputs from the host; inputs on the device need none.
mpt_status StagedInputs::reserve(InputSlot &slot, int64_t bytes) {
  if (slot.bytes >= bytes)
    return MPT_OK;
  if (!slot.memory.allocate(device, bytes) || !slot.host.allocate(device, bytes))
    return outOfMemory(bytes);
  device.addStaged(bytes - slot.bytes);
  slot.bytes = bytes;
  return device.synchronize(); // zeros were written on the other stream
}

mpt_status StagedInputs::locate(const std::vector<const void *> &pointers, std::vector<bool> &onHost,
                                int64_t &bytes) const {
  for (size_t k = 0; k < onHost.size(); ++k) {
    bool host = true;
    if (mpt_status status = device.locate(pointers[k], host))
      return status;
    onHost[k] = host;
    bytes += host ? aligned(f.inputs[k].bytes) : 0;
  }
  return MPT_OK;
}

/// Copies inputs from the host into `slot`, and inputs on the device to where they are read.
cu::Result StagedInputs::gather(InputSlot &slot, const std::vector<bool> &onHost, std::vector<const void *> &pointers,
                                std::vector<Piece> &pieces, int64_t &filled) {
  cu::Result result = cu::Success;
  int64_t offset = 0;
  for (size_t k = 0; k < onHost.size() && result == cu::Success; ++k) {
    const void *&given = pointers[k];
    int64_t size = f.inputs[k].bytes;
    if (onHost[k] && size) {
      memcpy(slot.host.data + filled, given, static_cast<size_t>(size));
      if (!pieces.empty() && aligned(pieces.back().offset + pieces.back().bytes) == offset)
        pieces.back().bytes = offset + size - pieces.back().offset;
      else
        pieces.push_back({offset, filled, size});
      filled += aligned(size);
    } else if (size) {
      result = device.api.MemcpyDtoDAsync_v2(address(memory.data() + offset), address(given), static_cast<size_t>(size),
                                             device.stream);
    }
    given = memory.data() + offset;
    offset += aligned(size);
  }
  return result;
}

/// Sends the bytes of `slot` to the device, and from there to where they are read.
cu::Result StagedInputs::send(InputSlot &slot, const std::vector<Piece> &pieces, int64_t filled) {
  const cu::Driver &api = device.api;
  cu::Result result = cu::Success;
  if (filled)
    result =
        api.MemcpyHtoDAsync_v2(address(slot.memory.data()), slot.host.data, static_cast<size_t>(filled), device.copies);
  if (result == cu::Success)
    result = api.EventRecord(slot.copied, device.copies);
  if (result == cu::Success)
    result = api.StreamWaitEvent(device.stream, slot.copied, 0);
  for (const Piece &piece : pieces)
    if (result == cu::Success)
      result = api.MemcpyDtoDAsync_v2(address(memory.data() + piece.offset), address(slot.memory.data() + piece.from),
                                      static_cast<size_t>(piece.bytes), device.stream);
  if (result == cu::Success)
    result = api.EventRecord(slot.read, device.stream);
  return result;
}

mpt_status StagedInputs::stage(std::vector<const void *> &pointers) {
  if (mpt_status status = prepare())
    return status;
  std::vector<bool> onHost(static_cast<size_t>(f.num_inputs));
  int64_t fromHost = 0;
  if (mpt_status status = locate(pointers, onHost, fromHost))
    return status;
  InputSlot &slot = slots[next];
  next ^= 1;
  // Two runs ago the same memory was filled; as a rule its bytes have left long since.
  if (slot.used)
    if (mpt_status status = device.waitForEvent(slot.copied, "copying inputs to the device"))
      return status;
  cu::Result result = slot.used ? device.api.StreamWaitEvent(device.copies, slot.read, 0) : cu::Success;
  if (mpt_status status = result == cu::Success ? reserve(slot, fromHost) : MPT_OK)
    return status;
  std::vector<Piece> pieces;
  int64_t filled = 0;
  if (result == cu::Success)
    result = gather(slot, onHost, pointers, pieces, filled);
  if (result == cu::Success)
    result = send(slot, pieces, filled);
  slot.used = result == cu::Success;
  return cu::check(device.api, result, "copying inputs to the device");
}
