// SPDX-License-Identifier: Apache-2.0
// Collectives that are no reductions, on a communicator.
#ifndef MPT_RUNTIME_WORLD_COLLECTIVES_H
#define MPT_RUNTIME_WORLD_COLLECTIVES_H

#include "world/Communicator.h"

namespace mpt::rt {

/// Done once every rank has begun it.
Failure barrierAcross(Communicator &communicator, const Tag &tag);

/// Copies `bytes` of the root's to all: small ones at once, others by pieces that the ranks pass on, so that the root
/// sends its data once or twice instead of once a rank.
Failure broadcastAcross(Communicator &communicator, Tag tag, int root, void *data, int64_t bytes);

/// `bytes` of each rank, in the order of ranks, on rank `root`, or on all where it is negative. A rank's own lie at
/// `mine`, which may be their place in `all`.
Failure gatherAcross(Communicator &communicator, const Tag &tag, int root, const void *mine, int64_t bytes, void *all);

constexpr size_t longestText = 1 << 20;

/// Compares a text of at most `longestText` over all ranks. `difference` names the rank that differs from rank 0, and
/// how, the same on all ranks, or stays empty.
Failure compareAcross(Communicator &communicator, Tag tag, const std::string &what, const std::string &text,
                      std::string &difference);

} // namespace mpt::rt

#endif
