// SPDX-License-Identifier: Apache-2.0
// Fusion regions: groups of core ops that become one generated kernel.
#ifndef MPT_DIALECT_MPT_FUSIONOPS_TD
#define MPT_DIALECT_MPT_FUSIONOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_FusionOp : MPT_Op<"fusion", "Movement", [IsolatedFromAbove, SingleBlock]> {
  let summary = "core ops that run as one kernel";
  let description = [{
    The body's arguments are the inputs; `mpt.yield` gives the results. Values inside have the meaning, and the rounding,
    that they have outside: fusion changes no bit but through the order in which a reduction sums.
  }];
  let arguments = (ins Variadic<MPT_Number>:$inputs);
  let results = (outs Variadic<MPT_Number>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $outputs) $body";
  let hasVerifier = 1;
}
def MPT_YieldOp : MPT_Op<"yield", "Movement", [Terminator, HasParent<"FusionOp">]> {
  let summary = "results of a fusion region";
  let arguments = (ins Variadic<MPT_Number>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

#endif
