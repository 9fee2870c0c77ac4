// SPDX-License-Identifier: Apache-2.0
// Messages between ranks through an MPI library that is opened at run time.
#ifndef MPT_RUNTIME_WORLD_MPICOMMUNICATOR_H
#define MPT_RUNTIME_WORLD_MPICOMMUNICATOR_H

#include "world/Peers.h"

#include <memory>

namespace mpt::rt {

struct MpiOptions {
  std::string library;            // path; empty: looked for
  std::vector<std::string> names; // by these
  int rank, size;                 // from the launcher; MPI has to confirm them; size 0: neither is known
  Times times;
};

/// Initializes MPI unless the program has. MPT_NOT_FOUND without a library.
Failure openMpi(const MpiOptions &options, std::unique_ptr<Communicator> &out);

} // namespace mpt::rt

#endif
