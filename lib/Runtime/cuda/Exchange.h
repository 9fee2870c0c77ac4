// SPDX-License-Identifier: Apache-2.0
// Exchanges between replicas on GPUs: kernels of ours that add, NCCL between processes.
#ifndef MPT_RUNTIME_CUDA_EXCHANGE_H
#define MPT_RUNTIME_CUDA_EXCHANGE_H

#include "core/DeviceExchange.h"
#include "cuda/CudaDevice.h"
#include "cuda/Nccl.h"

namespace mpt::rt {

class World;

/// NCCL only moves bytes: its own sums follow an order that depends on the number of ranks and on the machine. Sends,
/// receives and gathers are recorded in the graph of a step like any other work.
///
/// The communicator does not block its callers, so that whoever waits hears of a lost rank and can abort it.
class CudaExchange final : public DeviceExchange, private Watcher {
public:
  /// Collective. Null in `out` where values have to pass through the host: a library without the kernels, or several
  /// processes without NCCL.
  static mpt_status open(CudaDevice &device, World *world, std::unique_ptr<DeviceExchange> &out);
  ~CudaExchange() override;

  mpt_status copy(void *to, const void *from, int64_t bytes) override;
  mpt_status combine(bool sums, float *out, const float *a, const float *b, int64_t count) override;
  mpt_status widen(float *out, const void *values, int64_t dtype, int64_t count) override;
  mpt_status exchange(const std::vector<DeviceMessage> &sends, const std::vector<DeviceMessage> &receives) override;
  mpt_status gather(const std::vector<DeviceRows> &rows) override;
  mpt_status aside() override;
  void back() override { device.present = device.stream; }
  mpt_status join() override;
  mpt_status run(const std::vector<const void *> &bindings, bool eager,
                 const std::function<mpt_status()> &work) override;
  mpt_status rehearse(const std::function<mpt_status()> &work) override;
  void abort() override;

private:
  CudaExchange(CudaDevice &device, World *world) : device(device), world(world) {}
  mpt_status start(const nccl::Functions &functions);
  mpt_status look(double seconds = 0) override;
  mpt_status check(nccl::Result result, const char *what);
  mpt_status lost(const std::string &why);
  mpt_status settle(nccl::Result result, const char *what);
  mpt_status group(const char *what, const std::function<nccl::Result()> &calls);
  mpt_status words(int64_t count, void *&out);
  void dropGraph();
  void count();

  CudaDevice &device;
  World *const world; ///< null: one process
  const nccl::Functions *api = nullptr;
  nccl::Comm comm = nullptr;
  cu::Stream side = nullptr; // of work beside the functions
  cu::Event ahead = nullptr, behind = nullptr;
  bool isBehind = false;                             // work runs beside that nothing has waited for
  std::map<int64_t, std::unique_ptr<Memory>> counts; // words of kernels, by their count of elements
  std::vector<const void *> bindings;                // addresses of the last run
  bool warm = false, refusesGraphs = false;
  cu::GraphExec graph = nullptr;
  struct {
    int64_t sent = 0, received = 0;
  } perStep;           // bytes
  std::string failure; // once the communicator is aborted
  mpt_status failed = MPT_OK;
};

} // namespace mpt::rt

#endif
