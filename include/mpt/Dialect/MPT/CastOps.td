// SPDX-License-Identifier: Apache-2.0
// Cast family: conversion of element types.
#ifndef MPT_DIALECT_MPT_CASTOPS_TD
#define MPT_DIALECT_MPT_CASTOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_CastOp : MPT_Op<"cast", "Movement"> {
  let summary = "conversion of element type";
  let description = [{
    Rounds floats as `rounding` says and treats values beyond the result's range as `overflow` says; NaN stays NaN. `key`
    (tensor<2xi64>: seed, step) and `stream` select the random bits of stochastic rounding: element i of the tensor takes
    number i of stream `stream`. Float to integer truncates toward zero; to i1 it means != 0. A rounding cast is meaning
    and is never folded away; only casts that are exact for every value fold.
    C1: key is given if and only if rounding is stochastic. C2: x and y have one shape.
  }];
  let arguments = (ins MPT_Number:$x, Optional<MPT_Int>:$key,
    DefaultValuedAttr<MPT_RoundingAttr, "::mpt::Rounding::NearestEven">:$rounding,
    DefaultValuedAttr<MPT_OverflowAttr, "::mpt::Overflow::Infinity">:$overflow,
    DefaultValuedAttr<I64Attr, "0">:$stream);
  let results = (outs MPT_Number:$y);
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Type":$element_type)>];
  let assemblyFormat = "$x (`key` $key^ `:` type($key))? attr-dict `:` type($x) `to` type($y)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif
