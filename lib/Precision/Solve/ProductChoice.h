// SPDX-License-Identifier: Apache-2.0
// Which products keep 8-bit operands, by measured times.
#ifndef MPT_LIB_PRECISION_SOLVE_PRODUCTCHOICE_H
#define MPT_LIB_PRECISION_SOLVE_PRODUCTCHOICE_H

#include "Budget.h"

#include "mpt/Precision/Products.h"

namespace mpt {

/// Enters a decision for every op of `decisions` with 8-bit operands into `kept`, and returns the distinct products.
/// Ops that a rule on names gave 8 bits keep them.
///
/// Taken are the 8-bit products whose times, with each operand's conversion counted once however many of them read it,
/// come to least together with the 16-bit times of the others: a minimum cut (project selection). The time of a product
/// in 8 bits was measured with its conversions, which are taken off it by their own times. Functions that write states
/// count; their decision holds for the same op of every other function, so that all of them compute the same. Sizes of
/// one model add up. Fails where the policy's table lacks a product.
mlir::FailureOr<std::vector<MeasuredProduct>> chooseProducts(mlir::ModuleOp module, const Policy &policy,
                                                             const Decisions &decisions, KeptOps &kept);

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_PRODUCTCHOICE_H
