// SPDX-License-Identifier: Apache-2.0
// Exchanges between replicas on a device, without the host: the seam between a step's order and the transport (NCCL).
#ifndef MPT_RUNTIME_CORE_DEVICEEXCHANGE_H
#define MPT_RUNTIME_CORE_DEVICEEXCHANGE_H

#include "core/Error.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mpt::rt {

/// Part of a message to or from a peer, in the device's memory: `count` elements of type `dtype`.
struct DeviceMessage {
  int peer;
  void *data;
  int64_t count;
  int64_t dtype; // mpt_dtype
};

/// Rows of all ranks, one behind the other: `bytes` each. This rank's are in their place.
struct DeviceRows {
  void *all;
  int64_t bytes;
};

/// Puts work on a device and returns: nothing here waits for the device. All ranks put the same exchanges in the same
/// order. Addresses are of the device.
class DeviceExchange {
public:
  virtual ~DeviceExchange() = default;

  virtual mpt_status copy(void *to, const void *from, int64_t bytes) = 0;
  /// out = a + b in FP32, or the larger ones; NaN is one NaN. `out` is `a`, `b`, or apart from both.
  virtual mpt_status combine(bool sums, float *out, const float *a, const float *b, int64_t count) = 0;
  /// FP32 of 16-bit values.
  virtual mpt_status widen(float *out, const void *values, int64_t dtype, int64_t count) = 0;

  /// Sends and receives at the same time. Messages of one peer go in the order in which they are listed.
  virtual mpt_status exchange(const std::vector<DeviceMessage> &sends, const std::vector<DeviceMessage> &receives) = 0;
  virtual mpt_status gather(const std::vector<DeviceRows> &rows) = 0;

  /// Work from here to back() runs beside the functions of the step, behind their work that is on the device so far.
  virtual mpt_status aside() = 0;
  virtual void back() = 0;
  /// The functions' work from here on comes after the work that ran beside.
  virtual mpt_status join() = 0;

  /// Runs `work`, which puts the same on the device each time, while the addresses in `bindings` stay the same: the
  /// first time call by call, later as one graph, unless `eager`.
  virtual mpt_status run(const std::vector<const void *> &bindings, bool eager,
                         const std::function<mpt_status()> &work) = 0;
  /// Runs functions by themselves, so that they choose algorithms by measuring.
  virtual mpt_status rehearse(const std::function<mpt_status()> &work) = 0;
  /// Ends exchanges that this rank's device waits for: it cannot go on. The others learn of it through their world.
  virtual void abort() = 0;
};

} // namespace mpt::rt

#endif
