// SPDX-License-Identifier: Apache-2.0
// The thread that sends and receives for a world, while the program computes.
#ifndef MPT_RUNTIME_WORLD_PROGRESS_H
#define MPT_RUNTIME_WORLD_PROGRESS_H

#include "world/Communicator.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace mpt::rt {

/// Runs jobs one after the other, in the order in which they came, on a thread of its own. It alone uses the
/// communicator, from opening to closing it: MPI wants that, and sockets need no locks then.
class Progress {
public:
  using Open = std::function<Failure(std::unique_ptr<Communicator> &)>;
  using Job = std::function<Failure(Communicator &)>;

  /// Waits until the communicator is open, or `failure` says why it is not.
  Progress(Open open, Failure &failure);
  Progress(const Progress &) = delete;
  ~Progress();

  int rank() const { return communicator->rank; }
  int size() const { return communicator->size; }
  std::string transport() const { return communicator->name(); }
  const Traffic &traffic() const { return communicator->traffic; }
  double busySeconds() const { return static_cast<double>(busy.load()) * 1e-9; }
  int64_t jobsDone() const { return static_cast<int64_t>(good.load()); }

  /// Returns the job's ticket. Once a job or a peer has failed, later jobs are not run any more.
  uint64_t submit(Job job);
  /// Waits for a job; its failure, or an earlier one. A job that was done stays done whatever fails later.
  Failure wait(uint64_t ticket);
  /// How the world has failed, if it has. The other ranks have been told then.
  Failure check();
  /// Makes every call fail with `failure` from now on, here and on the other ranks.
  void fail(Failure failure);

private:
  void run(const Open &open, Failure &opening);
  /// The next job, or an empty one where there is none. False at the end.
  bool next(Job &job, Failure &toTell);
  void finishJob(Failure failure);

  std::unique_ptr<Communicator> communicator;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  uint64_t submitted = 0;
  std::atomic<uint64_t> good{0}; // jobs that were done; the first one that fails is the last one
  std::atomic<int64_t> busy{0};  // nanoseconds
  Failure failure;               // the first one
  bool told = false, stopping = false, opened = false;
  std::thread thread;
};

} // namespace mpt::rt

#endif
