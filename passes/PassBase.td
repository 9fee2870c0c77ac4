// SPDX-License-Identifier: Apache-2.0
// Classes for pass definitions: one `def` per pass in the Passes.td of its stage.
#ifndef MPT_PASSES_PASSBASE_TD
#define MPT_PASSES_PASSBASE_TD

include "mlir/Pass/PassBase.td"

#endif
