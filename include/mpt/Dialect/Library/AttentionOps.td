// SPDX-License-Identifier: Apache-2.0
// Attention family: attention and its gradients, each as one call.
#ifndef MPT_DIALECT_LIBRARY_ATTENTIONOPS_TD
#define MPT_DIALECT_LIBRARY_ATTENTIONOPS_TD

include "mpt/Dialect/Library/LibraryBase.td"

def Library_AttentionOp : Library_Op<"attention", "Contraction", [AttrSizedOperandSegments]> {
  let summary = "o = dropout(softmax(scale q k^T + bias)) v by batch and head";
  let description = [{
    q [batch, heads, queries, depth], k [batch, key heads, keys, depth], v [batch, key heads, keys, value depth],
    o [batch, heads, queries, value depth]. `bias` [batch or 1, heads or 1, queries or 1, keys] is added to the scores; `causal`
    excludes keys behind the query, so that query i sees keys 0 to i. `stats`, FP32 [batch, heads, queries], is the log of the
    sum of exponentials of each row of scores. A row without any key has -inf there, and 0 in o.

    Head h of q reads head h / (heads / key heads) of k and v (grouped queries, arXiv 2305.13245). With `key`, probabilities go
    through `mpt.dropout` of [batch, heads, queries, keys] with that key, `ratio` and `stream`; stats are those before it.

    C1: q, k and v have rank 4 and one element type, which is o's. C2: q and k have one depth, k and v one number of keys and of
    heads, by which q's number of heads is divisible; batches are equal. C3: o is [batch, heads, queries, value depth]. C4: stats is
    FP32 [batch, heads, queries]. C5: bias has rank 4, its last extent is keys, and each of the others is q's or 1.
    C7: key has two elements of 64 bits (seed, step); ratio lies in (0, 1) with it, and is 0 without.
  }];
  let arguments = (ins MPT_Float:$q, MPT_Float:$k, MPT_Float:$v, Optional<MPT_Float>:$bias, Optional<MPT_Int>:$key,
    F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$ratio, DefaultValuedAttr<I64Attr, "0">:$stream);
  let results = (outs MPT_Float:$o, MPT_Float:$stats);
  let assemblyFormat = "$q `,` $k `,` $v (`bias` $bias^ `:` type($bias))? (`dropout` $key^ `:` type($key))? attr-dict `:` type($q) `,` type($k) `,` type($v) `->` type($o) `,` type($stats)";
  let hasVerifier = 1;
}
def Library_AttentionGradientOp : Library_Op<"attention_gradient", "Contraction", [AttrSizedOperandSegments]> {
  let summary = "gradients of library.attention's q, k and v from that of o";
  let description = [{
    Operands are those of `library.attention`, both its results, and `d_o`, the gradient of o; the bias gets no gradient.
    Gradients of k and v are sums over the heads of q that read them. The same elements are dropped as forward: nothing but the
    statistics is kept of the scores.

    C1 to C5, C7: q, k, v, bias, key, o and stats satisfy library.attention's constraints. C6: d_o has o's type, dq, dk and dv have those of
    q, k and v.
  }];
  let arguments = (ins MPT_Float:$q, MPT_Float:$k, MPT_Float:$v, Optional<MPT_Float>:$bias, Optional<MPT_Int>:$key, MPT_Float:$o,
    MPT_Float:$stats, MPT_Float:$d_o, F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$ratio,
    DefaultValuedAttr<I64Attr, "0">:$stream);
  let results = (outs MPT_Float:$dq, MPT_Float:$dk, MPT_Float:$dv);
  let assemblyFormat = "$q `,` $k `,` $v (`bias` $bias^ `:` type($bias))? (`dropout` $key^ `:` type($key))? `of` $o `,` $stats `from` $d_o attr-dict `:` type($q) `,` type($k) `,` type($v) `of` type($o) `,` type($stats) `from` type($d_o) `->` type($dq) `,` type($dk) `,` type($dv)";
  let hasVerifier = 1;
}

#endif
