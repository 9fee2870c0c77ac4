// SPDX-License-Identifier: Apache-2.0
// The few calls of MPI that worlds make, whichever library and binary interface is behind them.
#ifndef MPT_RUNTIME_WORLD_MPILIBRARY_H
#define MPT_RUNTIME_WORLD_MPILIBRARY_H

#include "world/Communicator.h"

#include <memory>

namespace mpt::rt {

/// A send or receive under way. Its contents, a number or an address, are the library's.
struct MpiRequest {
  alignas(void *) unsigned char handle[sizeof(void *)] = {};
  bool active = false;
};

/// Calls return MPI's error code, 0 for success.
class MpiLibrary {
public:
  virtual ~MpiLibrary() = default;
  /// "Open MPI", "MPICH", "MPI's standard binary interface".
  virtual const char *name() const = 0;
  virtual bool isInitialized() = 0;
  virtual bool isFinalized() = 0;
  /// For calls of the thread that calls this alone.
  virtual int initialize() = 0;
  virtual int finalize() = 0;
  /// Whether threads may call MPI at the same time, for programs that initialized it themselves.
  virtual bool allowsThreads() = 0;
  /// A communicator of all processes that nothing else uses, which reports errors instead of ending the process.
  /// Collective.
  virtual int open(int &rank, int &size) = 0;
  virtual int close() = 0;

  virtual int send(const void *data, int bytes, int peer, int tag, MpiRequest &request) = 0;
  virtual int receive(void *data, int bytes, int peer, int tag, MpiRequest &request) = 0;
  /// A request that is done is not active any more.
  virtual int test(MpiRequest &request) = 0;
  /// A request that is cancelled is tested until it is done.
  virtual int cancel(MpiRequest &request) = 0;
  virtual std::string textOf(int error) = 0;
};

/// Opens the library at `path`; where that is empty, the one that the process has already, or the first of `names`.
Failure openMpiLibrary(const std::string &path, const std::vector<std::string> &names,
                       std::unique_ptr<MpiLibrary> &out);

} // namespace mpt::rt

#endif
