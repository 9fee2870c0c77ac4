// SPDX-License-Identifier: Apache-2.0
// Where a trainer's memory lies and its functions run: the seam between the core and the runtime of a target.
#ifndef MPT_RUNTIME_CORE_DEVICE_H
#define MPT_RUNTIME_CORE_DEVICE_H

#include "core/Error.h"

#include "core/DeviceExchange.h"

#include "mpt-c/abi.h"

#include <memory>
#include <string>

namespace mpt::rt {

struct FunctionState;
class Options;
class World;

/// Memory of a device; the address is meaningful on that device alone.
class Memory {
public:
  Memory(uint8_t *start, int64_t length) : start(start), length(length) {}
  Memory(const Memory &) = delete;
  virtual ~Memory() = default;
  uint8_t *const start;
  const int64_t length;
};

struct Transfer {
  void *to;
  const void *from;
  int64_t bytes;
};

class Device {
public:
  virtual ~Device() = default;
  /// True when the host reads and writes the device's memory directly.
  virtual bool sharesHostMemory() const = 0;
  /// Zeroed memory, aligned to 64 bytes at least; null (without an error text) when there is none.
  virtual std::unique_ptr<Memory> allocate(int64_t bytes) = 0;
  /// Host to device and back, after all work that was started before; done on return.
  virtual mpt_status upload(const Transfer *transfers, size_t count) = 0;
  virtual mpt_status download(const Transfer *transfers, size_t count) = 0;
  /// Brings an input of the caller's to the host, without waiting for work that was started before.
  virtual mpt_status fetch(const Transfer &transfer) { return download(&transfer, 1); }
  /// Whether the host can read `data`, which a caller gave as an input. An error for memory of another device.
  virtual mpt_status locate(const void *data, bool &onHost) = 0;
  /// Brings the inputs that `state.inputPointers` names, on the host or the device, to where `f` will read them.
  virtual mpt_status stage(const mpt_function_desc &f, FunctionState &state) = 0;
  /// Starts `f`; later calls of the device come after it.
  virtual mpt_status run(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec) = 0;
  /// The mean seconds of `runs` runs of `f` in a row, behind one that does not count.
  virtual mpt_status time(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec, int64_t runs,
                          double &seconds);
  /// Its maker's name for it, and the versions of the libraries that compute on it; empty where nobody knows.
  virtual std::string description() const { return ""; }
  virtual std::string libraries() { return ""; }
  /// Whether the values at `data` hold NaN or infinities, after all work that was started before; the host
  /// itself looks at memory that it reads directly.
  virtual mpt_status findNonfinite(const mpt_check_desc &, const void *data, bool &nans, bool &infinities) {
    nans = infinities = data != nullptr;
    return MPT_OK;
  }
  /// Collective where `world`, which lives as long, has several processes (null: one process). `out`: the exchange of
  /// replicas' values; null where they have to pass through the host.
  virtual mpt_status openExchange(World * /*world*/, std::unique_ptr<DeviceExchange> &out) {
    out = nullptr;
    return MPT_OK;
  }
  /// Waits for all that was started, and reports its errors.
  virtual mpt_status synchronize() = 0;
  /// The memory that is free for allocate(), for the end of an error's text; empty where nobody knows.
  virtual std::string freeMemory() const { return ""; }
  /// The algorithms that the device chose by measuring, as text for a trainer's state; empty where it measures nothing.
  virtual std::string choices() const { return ""; }
  /// Chooses as the state of `path` says from here on. True where that changes anything: caches of call sites are
  /// then to be dropped.
  virtual bool takeChoices(const std::string &, const char * /*path*/) { return false; }
  /// Bytes of staged inputs and of scratch of library calls.
  virtual int64_t stagingBytes() const = 0;
};

/// Of each runtime library: the target whose models it runs, the reason why this machine cannot run `module` (MPT_OK
/// when it can), and device `number` for a trainer, which takes the target's options from `options`.
extern const char *const targetName;
mpt_status checkMachine(const mpt_module_desc &module, const char *source);
mpt_status openDevice(const mpt_module_desc &module, int number, Options &options, std::unique_ptr<Device> &out);

/// One grow-only block of a device's memory.
class Block {
  std::unique_ptr<Memory> memory;

public:
  /// Drops the old contents. False when there is no memory.
  bool allocate(Device &device, int64_t bytes) {
    memory.reset();
    memory = device.allocate(bytes);
    return memory != nullptr;
  }
  uint8_t *data() const { return memory ? memory->start : nullptr; }
  int64_t bytes() const { return memory ? memory->length : 0; }
};

} // namespace mpt::rt

#endif
