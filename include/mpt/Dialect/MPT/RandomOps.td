// SPDX-License-Identifier: Apache-2.0
// Random family: the ops that draw from the counter-based generator.
#ifndef MPT_DIALECT_MPT_RANDOMOPS_TD
#define MPT_DIALECT_MPT_RANDOMOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_DropoutOp : MPT_InferredOp<"dropout", "Neutral"> {
  let summary = "x / (1 - ratio) where the generator keeps an element, else 0";
  let description = [{
    Linear in x, so its gradient is the same op with the same key and stream applied to dy: no mask is stored. `key` is
    tensor<2xi64> (seed, step). Element i is kept when number i of Philox 4x32-10 keyed by (seed, step, stream), as a
    fraction of 2^32, is not below `ratio` (in [0, 1)): word i % 4 of counter (i / 4, stream + step / 2^32, step % 2^32)
    under key seed, all modulo 2^32 but i / 4, which has two words. C1: key has two elements. C2: 0 <= ratio < 1.
  }];
  let arguments = (ins MPT_Float:$x, MPT_Int:$key, F64Attr:$ratio, I64Attr:$stream);
  let results = (outs MPT_Float:$y);
  let hasVerifier = 1;
}
def MPT_RandomUniformOp : MPT_Op<"random_uniform", "Movement"> {
  let summary = "uniform values in [low, high) from Philox 4x32-10 keyed by key (tensor<2xi64>: seed, step) and stream";
  let arguments = (ins MPT_Int:$key, F64Attr:$low, F64Attr:$high, I64Attr:$stream);
  let results = (outs MPT_Float:$y);
}

#endif
