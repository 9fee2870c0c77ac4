// SPDX-License-Identifier: Apache-2.0
// The step of a library with replicas whose values stay on the device: no host reads them, and all of it is one graph.
#ifndef MPT_RUNTIME_CORE_DEVICESTEP_H
#define MPT_RUNTIME_CORE_DEVICESTEP_H

#include "core/DeviceExchange.h"
#include "core/KeptValues.h"
#include "core/Replicas.h"
#include "core/Trainer.h"
#include "world/Bucket.h"

#include <deque>

namespace mpt::rt {

/// Replicas are folded and exchanged as in Reduction, by the same plan, so that results are bitwise identical to a
/// reduction by the host. A value of up to 64 elements goes to every rank at once, with all that are gathered behind
/// the same function in one group of calls; a larger one is sent by chunks, added up by their owners and gathered.
///
/// Ranks agree about a step before any of it starts, since nothing that has started can be refused.
class DeviceStep final : private OutputListener {
public:
  DeviceStep(mpt_trainer &trainer, const StepLayout &layout, World *world, std::unique_ptr<DeviceExchange> exchange);
  ~DeviceStep();
  /// Takes the memory of exchanged values. Once, before the first step.
  mpt_status prepare(const std::vector<ExchangedValue> &values);
  /// Checks the inputs of all functions and brings them to the device; `given` are the global step's.
  mpt_status stage(const std::vector<const mpt_tensor *> &given);
  int64_t keptBytes() const { return kept.bytes(); }
  /// Runs a step on the inputs of stage(). A rank that fails tells the others.
  mpt_status run(mpt_metrics *metrics);

private:
  struct Value { // that replicas exchange
    explicit Value(const ExchangedValue &what) : what(what) {}
    ExchangedValue what;
    int64_t chunk = 0;          // elements that a rank adds
    int64_t stride = 0;         // elements from a partial sum to the next one
    Block slots;                // partial sums, and the result in the first place; gathered: all rows
    Block received, wide;       // nodes of others; a contribution in FP32
    Block narrow, narrowOthers; // contributions in 16 bits: this rank's, the others'
    int64_t given = 0;          // local replicas that have contributed to it in this step
    bool complete = false;      // computed by the replica that runs
    bool isSmall = false;
    float *slot(int64_t i) const { return reinterpret_cast<float *>(slots.data()) + i * stride; }
  };
  struct Source { // of an input of a phase
    enum Kind { Exchanged, Kept, Number, Count, Given } kind;
    Value *value;  // that replicas have exchanged
    int64_t input; // of the global step
    bool split;
    Block aside; // where replicas read rows that do not begin at a multiple of 64 bytes
  };

  mpt_status takeMemory(Value &value);
  mpt_status findSources();
  mpt_status place(const void *host, int64_t bytes, Block &to);
  const void *addressOf(const Source &source, const mpt_tensor_desc &want, int64_t k) const;
  mpt_status enqueue();
  mpt_status shareChoices();
  mpt_status rehearse();
  mpt_status start(size_t phase, int64_t k, OutputListener *listener);
  mpt_status runPhase(size_t phase, int64_t k);
  void ready(int64_t output) override;
  mpt_status contribute(Value &value, const void *data);
  mpt_status fold(Value &value, const ReductionPlan::Leaf &leaf, const void *data);
  mpt_status reduceAcross(Value &value);
  mpt_status sumNodes(Value &value, const std::vector<float *> &nodes, float *out, int64_t count);
  mpt_status gatherSmall(size_t phase);
  mpt_status fail(mpt_status status);

  mpt_trainer &trainer;
  const StepLayout layout;
  World *const world; ///< null: one process
  const std::unique_ptr<DeviceExchange> exchange;
  const ReductionPlan plan;
  int64_t nodes = 0, mostNodes = 0; // of the plan: of all ranks, and the most of one
  std::deque<Value> values;
  KeptValues kept;
  std::vector<std::deque<Source>> sources; // by phase and input
  Block numbers, count;                    // of the local replicas, and how many there are in all
  FunctionState inputs;                    // of the global step
  size_t phase = 0;                        // that runs
  int64_t present = 0;                     // the local replica that runs
  bool sharesChoices = false;              // this rank computes as the first one does
  mpt_status early = MPT_OK;               // of contributions while a function runs
};

} // namespace mpt::rt

#endif
