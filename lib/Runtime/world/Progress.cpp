// SPDX-License-Identifier: Apache-2.0
// The world's thread: jobs while there are some, signs of life otherwise.
#include "world/Progress.h"

#include <chrono>
#include <csignal>

using namespace mpt::rt;

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Signals of the program are the program's: its own threads handle them, and writes here are not cut short.
struct SignalsBlocked {
  sigset_t before;
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
};

} // namespace

Progress::Progress(Open open, Failure &opening) {
  {
    SignalsBlocked blocked; // the new thread inherits it
    thread = std::thread([this, &open, &opening] { run(open, opening); });
  }
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return opened; });
}

Progress::~Progress() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  if (communicator) {
    communicator->interrupted = true; // nobody waits for a job any more
    communicator->wake();
  }
  changed.notify_all();
  thread.join();
}

void Progress::run(const Open &open, Failure &opening) {
  Failure failed;
  std::unique_ptr<Communicator> fresh;
  try {
    failed = open(fresh);
  } catch (const std::exception &e) {
    failed = {MPT_INTERNAL, -1, e.what()};
  }
  bool isOpen = fresh != nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    communicator = std::move(fresh);
    opening = failed; // of the constructor's caller: not to be touched any more after this
    opened = true;
  }
  changed.notify_all();
  if (!isOpen)
    return;
  Job job;
  Failure toTell;
  while (next(job, toTell)) {
    if (toTell) {
      communicator->tell(toTell);
      toTell = {};
      {
        std::lock_guard<std::mutex> lock(mutex);
        told = true;
      }
      changed.notify_all();
    } else if (job) {
      int64_t begin = now();
      Failure result;
      try {
        result = job(*communicator);
      } catch (const std::exception &e) {
        result = {MPT_INTERNAL, communicator->rank, e.what()};
      }
      busy += now() - begin;
      finishJob(result);
    } else if (Failure lost = communicator->idle()) {
      fail(lost);
    }
  }
  communicator->leave(failure);
}

bool Progress::next(Job &job, Failure &toTell) {
  std::unique_lock<std::mutex> lock(mutex);
  job = nullptr;
  if (failure && !told) {
    toTell = failure;
    return true;
  }
  if (failure) { // nothing but waiting for the end is left
    changed.wait(lock, [&] { return stopping; });
    return false;
  }
  if (jobs.empty())
    return !stopping;
  job = std::move(jobs.front());
  jobs.pop_front();
  return true;
}

void Progress::finishJob(Failure result) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!result)
      ++good;
    else if (!failure)
      failure = std::move(result);
  }
  changed.notify_all();
}

uint64_t Progress::submit(Job job) {
  uint64_t ticket;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ticket = ++submitted;
    jobs.push_back(std::move(job));
  }
  communicator->wake();
  return ticket;
}

Failure Progress::wait(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex);
  // After a failure the job may still run, on its caller's memory. And a caller that ends its process at once must not
  // be the first that the others miss.
  changed.wait(lock, [&] { return good >= ticket || (failure && told); });
  return good >= ticket ? Failure() : failure;
}

Failure Progress::check() {
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return !failure || told; });
  return failure;
}

void Progress::fail(Failure why) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!failure)
      failure = std::move(why);
  }
  communicator->interrupted = true;
  communicator->wake();
  changed.notify_all();
}
