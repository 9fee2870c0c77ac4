// SPDX-License-Identifier: Apache-2.0
// The order of a block's ops after some of them were merged.
#ifndef MPT_FUSION_OPORDER_H
#define MPT_FUSION_OPORDER_H

#include "mlir/IR/Block.h"

namespace mpt {

/// Puts every op where its operands are there, the earliest in the block first: an op that has to wait for a later one
/// comes right behind it, so that its operands do not live longer than they must (mlir::sortTopologically would put it
/// behind all that is ready). For graphs: no op may depend on itself.
void orderByReadiness(mlir::Block &block);

} // namespace mpt

#endif // MPT_FUSION_OPORDER_H
