// SPDX-License-Identifier: Apache-2.0
// Ops in which many elements meet in one running value. Attached by lib/Precision.
#ifndef MPT_INTERFACES_ACCUMULATES_TD
#define MPT_INTERFACES_ACCUMULATES_TD

include "mlir/IR/OpBase.td"

def Accumulates : OpInterface<"Accumulates"> {
  let cppNamespace = "::mpt";
  let description = [{
    More than two floats meet in one running value: a sum, a product or a statistic. The op states the value's type in its
    attribute `numerics` (`#mpt.numerics<in, acc, out>`). precision-widen-reductions sets it, no lowering narrows it, and
    precision-verify and fusion-verify-accumulators look at it.
  }];
  let methods = [
    InterfaceMethod<"Whether it does so with its attributes: a scatter that assigns combines nothing.", "bool",
      "accumulates", (ins), [{}], [{ return true; }]>
  ];
}

#endif
