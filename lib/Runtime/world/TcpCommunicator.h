// SPDX-License-Identifier: Apache-2.0
// Messages between ranks over a mesh of TCP connections.
#ifndef MPT_RUNTIME_WORLD_TCPCOMMUNICATOR_H
#define MPT_RUNTIME_WORLD_TCPCOMMUNICATOR_H

#include "world/TcpStartup.h"

#include <memory>

namespace mpt::rt {

/// Connects with all ranks.
Failure openTcp(const TcpOptions &options, std::unique_ptr<Communicator> &out);

} // namespace mpt::rt

#endif
